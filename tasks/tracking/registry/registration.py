"""A registration in MLflow: a run with its files, a version with its tags, an alias.

Each step looks up what it would make, so a registration can be killed at any point and repeated.
"""

from typing import TYPE_CHECKING

from astra_core.files import write_json, write_text
from tasks.figures.category_table import category_figures, rates_csv
from tasks.figures.turns import FILE as TURNS_FILE
from tasks.machine.scratch import scratch_folder
from tasks.params.schema import RegistrationConfiguration
from tasks.promotion.known_prompts import (
    KNOWN_FILE,
    KNOWN_FOLDER,
    KNOWN_TAG,
    known_digest,
    write_known,
)
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import write_record
from tasks.tracking.figures import HEADLINE, figures_csv, log_figures
from tasks.tracking.lineage.logged import LINEAGE, PARENT_TAGS, log_inputs, log_parent
from tasks.tracking.lineage.provenance import provenance
from tasks.tracking.pages import share_view
from tasks.tracking.registry.card import INTENDED_USE, model_card
from tasks.tracking.registry.evidence import Evidence
from tasks.tracking.registry.versions import (
    CANDIDATE,
    CHECKPOINT_DIGEST_TAG,
    EVALUATION_KEY_TAG,
    REGISTRATION_KEY_TAG,
    ensure_version,
    log_package,
    set_alias,
)
from tasks.tracking.runs import RUN_KEY_TAG, add_params, create_run, find_run, sync_steps
from tasks.tracking.store import told_address

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

KL_WARNING_TAG = "astra.kl_warning"
"""The tag of a run and a version whose training moved the attacker too far in one experience."""


def record(
    client: "MlflowClient", evidence: Evidence, registration: RegistrationConfiguration
) -> RegistrationReceipt:
    """The receipt, after the evidence is in the store; what is there already stays unchanged."""
    key, experiment = evidence.training.run_key, registration.experiment
    run = find_run(client, key, experiment=experiment)
    run = run or create_run(client, key, experiment=experiment)
    _log_run(client, run, evidence)
    version = _version(client, run, evidence, name=registration.model_name)
    set_alias(client, registration.model_name, CANDIDATE, version=version)
    if run.info.status != "FINISHED":
        # The attacker exists, so its training succeeded, whatever happened to the log.
        client.set_terminated(run.info.run_id, "FINISHED")
    return RegistrationReceipt(
        model_name=registration.model_name,
        version=version,
        run_id=run.info.run_id,
        experiment_id=run.info.experiment_id,
        tracking_uri=told_address(client.tracking_uri),
        checkpoint_digest=evidence.package.digest,
        evaluation_key=evidence.evaluation.evaluation_key,
    )


def _log_run(client: "MlflowClient", run: "Run", evidence: Evidence) -> None:
    """Adds to the run what it lacks: parameters, steps, data sets, files."""
    share_view(client, run.info.experiment_id)
    add_params(client, run, evidence.params)
    sync_steps(run.info.run_id, evidence.steps.to_dict("records"), client=client)
    log_inputs(client, run.info.run_id, evidence.datasets)
    log_parent(client, run.info.run_id, evidence.parent)
    for name, text in _kl_tags(evidence).items():
        client.set_tag(run.info.run_id, name, text)
    _log_artifacts(client, run.info.run_id, evidence)


def _version(client: "MlflowClient", run: "Run", evidence: Evidence, *, name: str) -> str:
    """The number of the version that serves the attacker, with its figures and its card."""
    run_id = run.info.run_id
    model = log_package(client, run, evidence.package, name=name)
    figures = _figures(evidence)
    log_figures(
        client,
        run_id,
        # The main ones, under names that the curves do not use.
        {name: figures[name] for name in HEADLINE if name in figures},
        step=evidence.training.optimizer_steps,
        model_id=model.model_id,
    )
    version = ensure_version(
        client,
        name,
        model,
        run_id=run_id,
        tags=_version_tags(evidence),
        description=_card(evidence),
    )
    return str(version.version)


def _log_artifacts(client: "MlflowClient", run_id: str, evidence: Evidence) -> None:
    for file, folder in evidence.files.items():
        client.log_artifact(run_id, str(file), folder)
    with scratch_folder() as drafts:
        examined = drafts / evidence.folder
        write_known(evidence.datasets["valid"], drafts / KNOWN_FOLDER / KNOWN_FILE)
        write_text(figures_csv(_figures(evidence)), drafts / "figures.csv")
        write_json(_lineage(evidence), drafts / LINEAGE)
        # Parameters of a run cannot change, so those of a second examination are kept here.
        write_json(dict(evidence.params), examined / "params.json")
        if evidence.turns is not None:
            write_record(evidence.turns, examined / TURNS_FILE)
        if evidence.evaluation.categories:
            write_text(rates_csv(evidence.evaluation.categories), examined / "categories.csv")
        client.log_artifacts(run_id, str(drafts))


def _figures(evidence: Evidence) -> dict[str, float | None]:
    found = evidence.evaluation
    return {**found.final_figures(), **category_figures(found.categories, "final")}


def _version_tags(evidence: Evidence) -> dict[str, str]:
    """The tags in the order of MLflow's lists of versions: figures first, digests last."""
    rate = evidence.evaluation.rate()
    params = evidence.params
    return {
        "attack_success_rate": f"{rate.value:.4f}",
        "attack_success_rate_low": f"{rate.low:.4f}",
        "attack_success_rate_high": f"{rate.high:.4f}",
        "lift": f"{evidence.evaluation.lift.value:.4f}",
        "algorithm": params["training"]["algorithm"]["name"],
        "scorer": params["system"]["scorer"]["name"],
        "seed": str(params["training_seed"]),
        "intended_use": INTENDED_USE,
        "licence": "restricted: authorised red teaming only",
        "prompts_licence": params["prompts"]["licence"],
        **_kl_tags(evidence),
        **{name: text for name, text in _lineage(evidence).items() if name in PARENT_TAGS},
        REGISTRATION_KEY_TAG: evidence.key,
        EVALUATION_KEY_TAG: evidence.evaluation.evaluation_key,
        KNOWN_TAG: known_digest(evidence.datasets["valid"]),
        CHECKPOINT_DIGEST_TAG: evidence.package.digest,
    }


def _lineage(evidence: Evidence) -> dict[str, str]:
    """What a version was made from, by the names that older tags had."""
    return {
        CHECKPOINT_DIGEST_TAG: evidence.package.digest,
        "astra.target_digest": evidence.target_digest,
        RUN_KEY_TAG: evidence.training.run_key,
        **provenance(),
        **(evidence.parent.tags() if evidence.parent else {}),
    }


def _kl_tags(evidence: Evidence) -> dict[str, str]:
    """A warning about experiences that moved the attacker too far, if there is one."""
    warning = evidence.training.kl_warning
    return {KL_WARNING_TAG: warning} if warning else {}


def _card(evidence: Evidence) -> str:
    return model_card(
        evaluation=evidence.evaluation,
        target=evidence.target_digest,
        target_name=(evidence.evaluation.target or {}).get("name", ""),
        scorer=evidence.params["system"]["scorer"]["name"],
        algorithm=evidence.params["training"]["algorithm"]["name"],
        seed=evidence.params["training_seed"],
        digest=evidence.package.digest,
        parent=evidence.parent,
    )
