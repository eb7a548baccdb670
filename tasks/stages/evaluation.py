"""Stage ``evaluation``: the trained attacker against the untrained one, on the same prompts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.files import draft_folder_of, write_json, write_text
from astra_core.metrics.statistics import paired_gain
from astra_core.rollout import Prompt
from astra_parts.metrics.categories import CATEGORY, category_labels
from astra_parts.metrics.invented_words import InventedWords
from astra_parts.metrics.tries import equivalent_tries
from tasks.figures.belief import Believer
from tasks.figures.category_table import category_rates, with_categories
from tasks.figures.examination import (
    EvaluationParams,
    Places,
    bootstrap_options,
    examined,
    invented_words,
    optimism,
    rates,
    was_selected,
)
from tasks.figures.examples import examples_page
from tasks.figures.plain_questions import plain_questions
from tasks.figures.prompt_rows import prompt_rows
from tasks.figures.target_use import target_note
from tasks.params.schema import Params
from tasks.pipeline.precision import remembered
from tasks.pipeline.stage import Dep, Metric, Out, sections_for, stage
from tasks.records.attacker import ATTACKER_FILE
from tasks.records.evaluation import EvaluationRecord, write_prompt_table
from tasks.records.prompts import read_prompts
from tasks.records.reports import nan_as_null, write_record
from tasks.records.rollouts import ROLLOUTS_FILE, StoredRollouts, write_rollouts
from tasks.records.vocabulary import read_vocabulary

if TYPE_CHECKING:
    import pandas as pd

    from astra_core.evaluator import Evaluation
    from astra_core.metrics.statistics import Interval


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Attack success of both attackers, and the gain."""

    attacker: "Interval"
    baseline: "Interval"
    lift: "Interval"
    unique_probes: float
    num_prompts: int
    num_categories: int = 0
    corrected: "Interval | None" = None
    confirmed: "Interval | None" = None
    plain: str = ""

    def summary(self) -> str:
        """One line."""
        of_them = f" of {self.num_categories} categories" if self.num_categories else ""
        told = {"corrected": self.corrected, "confirmed": self.confirmed}
        belief = "".join(
            f", {name} {rate.spelled('.1%')}" for name, rate in told.items() if rate is not None
        )
        return (
            f"attack success {self.baseline.spelled('.1%')} -> {self.attacker.spelled('.1%')} "
            f"on {self.num_prompts} test prompts{of_them}, unique probes {self.unique_probes:.2f}"
            f"{belief}{f'; {self.plain}' if self.plain else ''}"
        )


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """Prompts and models, and where reports, table, examples and replies go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    attacker: Dep = Path("models/attacker")
    rollouts: Dep = Path("data/rollouts")
    report: Out = Path("reports/evaluation.json")
    headline: Metric = Path("reports/headline.json")
    table: Out = Path("reports/evaluation_prompts.parquet")
    examples: Out = Path("reports/examples.md")
    evidence: Out = Path("data/evaluation")


@stage()
def evaluate_attacker(
    params: EvaluationParams, files: EvaluationFiles = EvaluationFiles()
) -> EvaluationReport:
    """Rolls both attackers out on the test prompts and writes their figures."""
    evaluation = params.evaluation
    prompts = read_prompts(files.valid / "test.parquet", limit=evaluation.num_prompts)
    params = replace(params, system=remembered(params.system, files.attacker / ATTACKER_FILE))
    places = Places(files.base, read_vocabulary(files.valid))
    asked = _believer(params)
    trained, key = examined(files.attacker, prompts, params, places=places, asked=asked)
    first = StoredRollouts(files.rollouts / ROLLOUTS_FILE) if evaluation.bandit_calls else ()
    untrained, _ = examined(None, prompts, params, places=places, asked=asked, first=first)
    labels = category_labels(prompts)
    record = _compared(trained, untrained, labels, key=key, params=params)
    record = replace(record, belief=asked.belief(trained, untrained))
    if was_selected(files.attacker):
        dev = read_prompts(files.valid / "dev.parquet", limit=evaluation.num_training_prompts)
        chosen_on, _ = examined(files.attacker, dev, params, places=places)
        excess = optimism(rates(chosen_on), rates(trained), **bootstrap_options(params))
        record = replace(record, selection=excess)
    if evaluation.ask_prompts:
        tried = read_prompts(files.valid / "dev.parquet", limit=evaluation.num_training_prompts)
        found = plain_questions(rates(trained), prompts, tried, params=params, places=places)
        record = replace(record, plain=found)
    record = replace(record, target=target_note(params.system))
    write_record(record.to_record(), files.report)
    write_json(record.headline(), files.headline)
    invented = invented_words(params, places)
    _write_evidence(trained, untrained, labels, files=files, invented=invented)
    page = examples_page(trained.graphs, count=evaluation.num_examples)
    write_text(with_categories(page, record.categories), files.examples)
    return EvaluationReport(
        attacker=record.rate(),
        baseline=record.rate("baseline"),
        lift=record.lift,
        unique_probes=trained.figures["unique_probes"],
        num_prompts=len(prompts),
        num_categories=len(record.categories),
        plain=record.plain.told() if record.plain else "",
        **{
            name: trained.intervals.get(f"{name}_attack_success_rate")
            for name in ("corrected", "confirmed")
        },
    )


def evaluate_checkpoint(
    weights: Path | None,
    params: Params,
    *,
    prompts: Iterable[Prompt] | None = None,
    base: Path = Path("models/base"),
    valid: Path = Path("data/valid"),
) -> tuple[dict[str, Any], "pd.DataFrame"]:
    """The record and per-prompt table of any attacker's folder, examined as params.yaml says.

    Args:
        weights: A Hugging Face folder; None is the untrained attacker.
        params: The whole of params.yaml.
        prompts: Other prompts than the test prompts, for example fresh ones.
        base: The folder that the models stage wrote.
        valid: The folder that the validation stage wrote.
    """
    import pandas as pd

    evaluation = params.evaluation
    chosen = (
        list(prompts)
        if prompts is not None
        else read_prompts(valid / "test.parquet", limit=evaluation.num_prompts)
    )
    system = remembered(params.system, weights / ATTACKER_FILE) if weights else params.system
    own = replace(
        sections_for(EvaluationParams, params),
        system=system,
        evaluation=evaluation.model_copy(update={"num_prompts": len(chosen)}),
    )
    places = Places(base, read_vocabulary(valid))
    asked = _believer(own)
    found, key = examined(weights, chosen, own, places=places, asked=asked)
    record = {
        "evaluation_key": key,
        "num_prompts": len(chosen),
        "threshold": evaluation.threshold,
        "attacker": found.record(),
    }
    invented = invented_words(own, places)
    return nan_as_null(record), pd.DataFrame(prompt_rows(found, "attacker", invented=invented))


def _believer(params: EvaluationParams) -> Believer:
    """What is asked about the judge, with the workers that roll out."""
    return Believer.of(
        params.evaluation,
        seed=params.training_seed,
        executor=params.executor,
        trees_at_once=params.machine.prompts_per_shard,
    )


def _compared(
    trained: "Evaluation",
    untrained: "Evaluation",
    labels: Sequence[str],
    *,
    key: str,
    params: EvaluationParams,
) -> EvaluationRecord:
    evaluation = params.evaluation
    own, before = rates(trained), rates(untrained)
    ids = [outcome.prompt_id for outcome in trained.outcomes]
    gains = [after - other for after, other in zip(own, before, strict=True)]
    return EvaluationRecord(
        evaluation_key=key,
        num_prompts=len(trained.outcomes),
        num_rollouts=evaluation.num_rollouts,
        depth=evaluation.depth,
        threshold=evaluation.threshold,
        confidence=evaluation.confidence,
        attacker={**trained.intervals, **trained.figures},
        baseline={**untrained.intervals, **untrained.figures},
        lift=paired_gain(ids, gains, **bootstrap_options(params)),
        equivalent_tries=equivalent_tries(own, before, **bootstrap_options(params)),
        categories=category_rates(
            labels, attacker=own, baseline=before, **bootstrap_options(params)
        ),
    )


def _write_evidence(
    trained: "Evaluation",
    untrained: "Evaluation",
    labels: Sequence[str],
    *,
    files: EvaluationFiles,
    invented: InventedWords,
) -> None:
    """Writes the table of prompts and every reply."""
    sides = (("attacker", trained), ("baseline", untrained))
    rows = [row for role, own in sides for row in prompt_rows(own, role, invented=invented)]
    if labels:
        rows = [row | {CATEGORY: label} for row, label in zip(rows, [*labels] * 2, strict=True)]
    write_prompt_table(rows, files.table)
    with draft_folder_of(files.evidence) as draft:
        write_rollouts(trained.graphs, draft / "attacker.parquet")
        write_rollouts(untrained.graphs, draft / "baseline.parquet")
