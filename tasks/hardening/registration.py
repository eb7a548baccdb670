"""Each hardened target as a version of a registered model of its own, once."""

from typing import TYPE_CHECKING

from astra_core.files import record_digest
from astra_core.models.folders import attacker_digest
from tasks.hardening.places import HardeningPlace
from tasks.params.schema import Params
from tasks.records.hardening import Hardening, HardeningRound
from tasks.tracking.figures import log_figures
from tasks.tracking.lineage.provenance import provenance
from tasks.tracking.registry.versions import (
    CHECKPOINT_DIGEST_TAG,
    REGISTRATION_KEY_TAG,
    Package,
    ensure_version,
    log_package,
)
from tasks.tracking.runs import create_run, find_run
from tasks.tracking.store import connect, store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

SUFFIX = "-target"
_ABOUT = "Targets hardened against red-team attackers, each version from the one before."


def register_target(found: Hardening, place: HardeningPlace) -> str:
    """The number of the last round's version; what is there already stays unchanged.

    Raises TrackingError if the store did not answer.
    """
    with store_errors():
        return _register(connect(), found, place)


def _register(client: "MlflowClient", found: Hardening, place: HardeningPlace) -> str:
    params, last = place.params, found.rounds[-1]
    folder, name = place.target(last.number), f"{params.registration.model_name}{SUFFIX}"
    key = record_digest([found.key, last.number, last.target])
    experiment = f"{params.registration.experiment}-hardening"
    tags = {"astra.hardening": found.key, "astra.round": str(last.number)}
    run = find_run(client, key, experiment=experiment) or create_run(
        client, key, experiment=experiment, tags=tags, name=f"{name} round {last.number}"
    )
    figures = _figures(found, last)
    log_figures(client, run.info.run_id, figures, step=last.number)
    package = Package(folder, attacker_digest(folder), _config(params))
    model = log_package(client, run, package, name=name)
    version = ensure_version(
        client,
        name,
        model,
        run_id=run.info.run_id,
        tags={
            **{label.partition("/")[2]: f"{value:.4f}" for label, value in figures.items()},
            **tags,
            **provenance(),
            REGISTRATION_KEY_TAG: key,
            CHECKPOINT_DIGEST_TAG: package.digest,
        },
        description=f"Target after round {last.number}, from {last.num_findings} findings. "
        "Served, it joins turns by system.separator: its chat format and system prompt are those "
        "of system.target.options.",
        about=_ABOUT,
    )
    client.set_terminated(run.info.run_id, "FINISHED")
    return str(version.version)


def _figures(found: Hardening, last: HardeningRound) -> dict[str, float]:
    cells = found.success[last.number]
    told = {
        "old_attack_success_rate": cells[0],
        "over_refusal_rate": last.over_refusal,
        "perplexity": last.perplexity,
        "perplexity_ratio": last.perplexity_ratio,
    }
    if last.number in cells:
        told["fresh_attack_success_rate"] = cells[last.number]
    return {
        f"hardening/{end}": value
        for name, figure in told.items()
        for end, value in figure.flat(name).items()
    }


def _config(params: Params) -> dict[str, object]:
    """How the version continues a conversation: as the target answers."""
    system = params.system
    return {
        "separator": system.separator,
        "max_context_tokens": system.max_context_tokens,
        **system.response.model_dump(mode="json"),
    }
