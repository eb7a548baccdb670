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
from astra_parts.metrics.resampling import equivalent_tries
from tasks.figures.category_table import category_rates, with_categories
from tasks.figures.examination import (
    EvaluationFiles,
    EvaluationParams,
    Examiner,
    optimism,
    rates,
    was_selected,
)
from tasks.figures.examples import examples_page
from tasks.figures.over_refusal import over_refusal
from tasks.figures.plain_questions import plain_questions
from tasks.figures.prompt_rows import prompt_rows
from tasks.figures.transfer import by_target, transfers
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for, stage
from tasks.records.evaluation import EvaluationRecord, write_prompt_table
from tasks.records.prompts import read_prompts
from tasks.records.reports import nan_as_null, write_record
from tasks.records.rollouts import ROLLOUTS_FILE, StoredRollouts, write_rollouts

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
    beside: tuple[str, ...] = ()

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
            f"{belief}{''.join(f'; {told}' for told in self.beside)}"
        )


@stage()
def evaluate_attacker(
    setup: Examiner, files: EvaluationFiles = EvaluationFiles()
) -> EvaluationReport:
    """Rolls both attackers out on the test prompts and writes their figures."""
    evaluation = setup.params.evaluation
    prompts = read_prompts(files.valid / "test.parquet", limit=evaluation.num_prompts)
    trained, key = setup.examine(files.attacker, prompts)
    is_selected, dev, selection = was_selected(files.attacker), [], None
    if is_selected or evaluation.ask_prompts:
        dev = read_prompts(files.valid / "dev.parquet", limit=evaluation.num_training_prompts)
    if is_selected:
        chosen_on, _ = setup.examine(files.attacker, dev, is_final=False)
        selection = optimism(rates(chosen_on), rates(trained), **setup.believer.bootstrap)
    first = StoredRollouts(files.rollouts / ROLLOUTS_FILE) if evaluation.bandit_calls else ()
    # One for all that the untrained attacker's target answers: large weights take minutes to load.
    system, _ = loaded = setup.load_attacker(None)
    untrained, _ = setup.examine(None, prompts, first=first, loaded=loaded)
    untrained = setup.match_strategies(trained, untrained)
    labels = category_labels(prompts)
    plain = None
    if evaluation.ask_prompts:
        plain = plain_questions(rates(trained), prompts, dev, examiner=setup, system=system)
    refused = over_refusal(prompts, examiner=setup, system=system)
    record = replace(
        _compare(trained, untrained, labels, key=key, examiner=setup),
        belief=setup.believer.belief(trained, untrained),
        selection=selection,
        plain=plain,
        target=setup.target,
        over_refusal=refused,
        targets=by_target(trained, untrained, examiner=setup),
        transfer=transfers(trained, untrained, examiner=setup, system=system),
    )
    write_record(record.to_record(), files.report)
    write_json(record.headline(), files.headline)
    _write_evidence(trained, untrained, labels, files=files, invented=setup.invented)
    page = examples_page(trained.graphs, count=evaluation.num_examples)
    write_text(with_categories(page, record.categories), files.examples)
    return EvaluationReport(
        attacker=record.rate(),
        baseline=record.rate("baseline"),
        lift=record.lift,
        unique_probes=trained.figures["unique_probes"],
        num_prompts=len(prompts),
        num_categories=len(record.categories),
        beside=tuple(record.beside()),
        corrected=trained.intervals.get("corrected_attack_success_rate"),
        confirmed=trained.intervals.get("confirmed_attack_success_rate"),
    )


def evaluate_checkpoint(
    weights: Path | None,
    params: Params,
    *,
    prompts: Iterable[Prompt] | None = None,
    base: Path = Path("models/base"),
) -> tuple[dict[str, Any], "pd.DataFrame"]:
    """The record and per-prompt table of any attacker's folder, examined as params.yaml says.

    ``weights``: a Hugging Face folder; None is the untrained attacker.
    """
    import pandas as pd

    evaluation = params.evaluation
    files = EvaluationFiles(base=base, attacker=weights or base)
    chosen = (
        list(prompts)
        if prompts is not None
        else read_prompts(files.valid / "test.parquet", limit=evaluation.num_prompts)
    )
    examiner = Examiner.of(sections_for(EvaluationParams, params), files)
    found, key = examiner.examine(weights, chosen)
    record = {
        "evaluation_key": key,
        "num_prompts": len(chosen),
        "threshold": evaluation.threshold,
        "attacker": found.record(),
    }
    rows = prompt_rows(found, "attacker", invented=examiner.invented)
    return nan_as_null(record), pd.DataFrame(rows)


def _compare(
    trained: "Evaluation",
    untrained: "Evaluation",
    labels: Sequence[str],
    *,
    key: str,
    examiner: Examiner,
) -> EvaluationRecord:
    evaluation = examiner.params.evaluation
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
        lift=paired_gain(ids, gains, **examiner.believer.bootstrap),
        equivalent_tries=equivalent_tries(own, before, **examiner.believer.bootstrap),
        categories=category_rates(
            labels, attacker=own, baseline=before, **examiner.believer.bootstrap
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
