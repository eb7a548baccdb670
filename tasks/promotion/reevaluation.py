"""``python -m tasks.promotion.reevaluation``: the champion examined on prompts it has never met.

This is not a stage: DVC versions what a run of the pipeline makes, while this examines what is in
service. The fresh prompts come from the built-in grammar under another seed, or from a file, and
pass the same validation. Prompts that a registered version or the last run was trained or examined
on are left out.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.files import record_digest, write_text
from astra_core.metrics.statistics import Interval
from astra_core.rollout import Prompt
from astra_parts.arguments import whole_number
from astra_parts.metrics.categories import category_labels
from tasks.figures.category_table import category_figures, category_rates, rates_csv, rates_table
from tasks.machine.console import Parser, complain, say
from tasks.machine.garbage import collect_rarely
from tasks.machine.scratch import scratch_folder
from tasks.params.schema import Params
from tasks.pipeline import failures
from tasks.pipeline.boundary import run_command
from tasks.pipeline.precision import with_remembered
from tasks.promotion.drift import drift_between
from tasks.promotion.examinations import find_examination
from tasks.promotion.fresh_prompts import fresh_prompts
from tasks.promotion.known_prompts import KnownPrompts, known_prompts
from tasks.records.attacker import ATTACKER_FILE
from tasks.records.evaluation import CategoryRates, Span, flat_figures
from tasks.records.reports import write_record
from tasks.tracking.figures import log_figures
from tasks.tracking.registry.registered import version_behind
from tasks.tracking.registry.versions import CHAMPION, EVALUATION_KEY_TAG, checkpoint_folder
from tasks.tracking.runs import create_run, find_run
from tasks.tracking.store import connect, store_errors

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

NAME = "reevaluation"
FOLDER = Path(".astra/reevaluation")


@dataclass(frozen=True, slots=True)
class Reevaluation:
    """How the champion does today.

    Attributes:
        version: The champion's; None while there is none, and then the rest is empty.
        categories: Both attackers by the category of the fresh prompts, as in an evaluation's
            report; empty where they have none.
    """

    model_name: str
    version: str | None = None
    num_prompts: int = 0
    num_met: int = 0
    success_rate: Span | None = None
    untrained: Span | None = None
    registered: Span | None = None
    drift: Span | None = None
    run_id: str = ""
    categories: dict[str, CategoryRates] = field(default_factory=dict)

    def page(self) -> str:
        """The summary, with a table of categories where there are some."""
        table = rates_table(self.categories)
        return f"{self.summary()}\n\n{table}" if table else self.summary()

    @property
    def has_drifted(self) -> bool:
        """Whether the success rate differs by more than the sampling errors of both can explain."""
        return self.drift is not None and not self.drift.low <= 0.0 <= self.drift.high

    def summary(self) -> str:
        """One line."""
        if self.version is None or self.success_rate is None:
            return f"{self.model_name} has no champion yet; 'astra run' makes a candidate"
        line = (
            f"{self.model_name} version {self.version}: attack success "
            f"{self.success_rate.spelled()} on {self.num_prompts} fresh prompts"
        )
        if self.untrained is not None:
            line += f", untrained {self.untrained.spelled()}"
        if self.registered is not None:
            line += f", registered {self.registered.spelled()}"
        if self.drift is not None:
            word = "is more than" if self.has_drifted else "may be"
            line += f"; the difference {self.drift.spelled('+.3f')} {word} chance"
        return line


def reevaluate_champion(
    params: Params, *, fresh_seed: int, file: Path | None = None, folder: Path = FOLDER
) -> Reevaluation:
    """The champion's attack success on fresh prompts, recorded as a separate MLflow run.

    ``folder``: where the prompts are written; its content is replaced.

    Raises DataError if too few fresh prompts are left, GateError if the fresh prompts did not pass
    validation, TrackingError if the registry did not answer.
    """
    from tasks.stages.evaluation import evaluate_checkpoint

    name = params.registration.model_name
    with ExitStack() as fetched:
        with store_errors():
            client = connect()
            champion = version_behind(client, name, CHAMPION)
            if champion is None:
                return Reevaluation(name)
            weights = fetched.enter_context(checkpoint_folder(client, champion))
            known = known_prompts(client, name)
            rates = _registered_rates(client, champion)
        prompts, num_met = fresh_prompts(
            params, known.fingerprints, fresh_seed=fresh_seed, file=file, folder=folder
        )
        _tell(known, num_met)
        # The settings that the champion was trained with, for both.
        system = with_remembered(params.system, weights / ATTACKER_FILE)
        examined = params.model_copy(update={"system": system})
        record, table = evaluate_checkpoint(weights, examined, prompts=prompts)
        untrained, before = evaluate_checkpoint(None, examined, prompts=prompts)
    categories = _categories(prompts, table, before, params=params)
    today, confidence = table["success_rate"].dropna().tolist(), params.evaluation.confidence
    drift = drift_between(today, rates, confidence=confidence) if rates else None
    with store_errors():
        run_id = _record(
            client,
            champion,
            params,
            records={"eval": record, "baseline": untrained},
            drift=drift,
            categories=categories,
        )
    return Reevaluation(
        model_name=name,
        version=str(champion.version),
        num_prompts=len(prompts),
        num_met=num_met,
        success_rate=Interval.read(record["attacker"]["attack_success_rate"]),
        untrained=Interval.read(untrained["attacker"]["attack_success_rate"]),
        registered=_registered_rate(champion),
        drift=drift,
        run_id=run_id,
        categories=categories,
    )


def _categories(
    prompts: Sequence[Prompt], after: "pd.DataFrame", before: "pd.DataFrame", *, params: Params
) -> dict[str, CategoryRates]:
    """Both attackers by category; none where the prompts have none."""
    return category_rates(
        category_labels(prompts),
        attacker=after["success_rate"].tolist(),
        baseline=before["success_rate"].tolist(),
        num_resamples=params.evaluation.num_resamples,
        confidence=params.evaluation.confidence,
        seed=params.training_seed,
    )


def _tell(known: KnownPrompts, num_met: int) -> None:
    """Prints a line about prompts left out, and one about versions without a record of theirs."""
    if num_met:
        say(f"{NAME:<13}{num_met} prompts left out, which an attacker of this registry has met")
    if known.unrecorded:
        complain(
            f"warning: version {', '.join(known.unrecorded)} has no record of its prompts, which "
            "may be among these; register it again to record them"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the examination that the command line asks for is left as JSON."""
    collect_rarely()
    parser = Parser(prog="python -m tasks.promotion.reevaluation")
    parser.add_argument("--seed", type=whole_number, required=True)
    parser.add_argument("--file", type=Path)
    asked = parser.parse_args(arguments)

    def examine(params: Params) -> str:
        found = reevaluate_champion(params, fresh_seed=asked.seed, file=asked.file)
        write_record(found, FOLDER / "outcome.json")
        return found.page()

    return run_command(NAME, examine)


def _registered_rates(client: "MlflowClient", champion: "ModelVersion") -> list[float]:
    """The success rate of each prompt at registration; none if its table is gone."""
    found = find_examination(client, champion, champion.tags.get(EVALUATION_KEY_TAG, ""))
    if found is None:
        return []
    table = found[1]
    rates: list[float] = table.loc[table["role"] == "attacker", "success_rate"].dropna().tolist()
    return rates


def _registered_rate(champion: "ModelVersion") -> Interval | None:
    """The interval that the version was registered with."""
    names = [f"attack_success_rate{end}" for end in ("", "_low", "_high")]
    if not champion.tags.keys() >= {*names}:
        return None
    return Interval(*(float(champion.tags[name]) for name in names))


def _record(
    client: "MlflowClient",
    champion: "ModelVersion",
    params: Params,
    *,
    records: Mapping[str, Mapping[str, Any]],
    drift: Interval | None,
    categories: Mapping[str, CategoryRates],
) -> str:
    """The run that holds the records; the same champion on the same prompts is recorded once."""
    experiment = f"{params.registration.experiment}-{NAME}"
    keys = [record["evaluation_key"] for record in records.values()]
    key = record_digest([NAME, champion.version, *keys])
    found = find_run(client, key, experiment=experiment)
    if found is not None and found.info.status == "FINISHED":
        return str(found.info.run_id)
    tags = {"model_name": champion.name, "model_version": str(champion.version)}
    run = found or create_run(client, key, experiment=experiment, tags=tags, name=NAME)
    figures = dict(flat_figures("drift", {"attack_success_rate": drift} if drift else {}))
    for area, record in records.items():
        figures |= flat_figures(area, record["attacker"])
    figures |= category_figures(categories, "eval")
    log_figures(client, run.info.run_id, figures)
    if categories:
        with scratch_folder() as drafts:
            write_text(rates_csv(categories), drafts / "categories.csv")
            client.log_artifact(run.info.run_id, str(drafts / "categories.csv"))
    client.set_terminated(run.info.run_id, "FINISHED")
    return str(run.info.run_id)


if __name__ == "__main__":
    failures.leave(main())
