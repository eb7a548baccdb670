"""The lines at the end of a run: the gain, the registered version and the decision."""

from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.metrics.statistics import Interval
from tasks.machine.time_words import duration
from tasks.records.evaluation import (
    EVALUATION,
    EvaluationRecord,
    read_evaluation,
    transfers_told,
    ways_told,
    worth_told,
)
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.records.training import KEPT_UNTRAINED, TRAINING, TrainingRecord
from tasks.report.provocation import provocation_note
from tasks.tracking.lineage.provenance import is_uncommitted

LOCK = Path("dvc.lock")

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


def run_summary(
    decision: "PromotionDecision | None",
    *,
    seconds: float,
    evaluation: Path = EVALUATION,
    receipt: Path = RECEIPT,
    lock: Path = LOCK,
    training: Path = TRAINING,
) -> list[str]:
    """The last lines of ``astra run``; only one for a run of some steps without a decision."""
    if decision is None:
        return ["", f"wall time      {duration(seconds)}"]
    lines = [""]
    if evaluation.is_file():
        is_untrained = training.is_file() and read_record(training, TrainingRecord).is_untrained
        lines += evaluation_lines(
            read_evaluation(evaluation), name="kept" if is_untrained else "trained"
        )
        if is_untrained:
            lines.append(f"kept           {KEPT_UNTRAINED}")
    if receipt.is_file():
        found = read_record(receipt, RegistrationReceipt)
        lines.append(f"registered     {found.model_name} version {found.version}")
    lines.append(f"promotion      {decision.summary()}")
    lines.append(f"wall time      {duration(seconds)}")
    if is_uncommitted(lock):
        lines.append(
            f"commit         {lock.name}, by which git finds this run's data and models again"
        )
    lines.append("look           astra ui")
    return lines


def evaluation_lines(record: EvaluationRecord, *, name: str = "trained") -> list[str]:
    """Attack success before and after, the gain, diversity, optimism, each category."""
    before, after = (record.rate(role).spelled() for role in ("baseline", "attacker"))
    diverse = [figures["unique_probes"] for figures in (record.baseline, record.attacker)]
    gain, share = record.lift.spelled(), f"{record.confidence:.0%}"
    kind = provocation_note(record)
    by_category = [
        f"{'' if number else 'by category':<15}{label} ({own.num_prompts} prompts): "
        f"{own.baseline.spelled()} untrained, {own.attacker.spelled()} {name}"
        for number, (label, own) in enumerate(record.categories.items())
    ]
    return [
        f"attack success {before} untrained, {after} {name}",
        f"gain           {gain} ({share} intervals over {record.num_prompts} prompts)",
        f"unique probes  {diverse[0]:.2f} untrained, {diverse[1]:.2f} {name}",
        *_strategy_lines(record, name),
        *([f"worth          {worth}"] if (worth := worth_told(record)) else []),
        *([] if kind is None else [f"target         {kind}"]),
        *([f"over-refusal   {refused.words()}"] if (refused := record.over_refusal) else []),
        *([f"each target    {told}"] if (told := transfers_told(record.targets)) else []),
        *([f"transfer       {told}"] if (told := transfers_told(record.transfer)) else []),
        *_selection_lines(record),
        *_belief_lines(record, name),
        *by_category,
    ]


def _strategy_lines(record: EvaluationRecord, name: str) -> list[str]:
    """Strategies among the hits of both; no line for a record that lacks them."""
    roles = (record.baseline, record.attacker)
    keys = ("strategies", "num_hits_compared", "top_strategy_share")
    found = [[figures.get(key) for key in keys] for figures in roles]
    spelled = [
        f"{kinds:.1f} in {hits:.0f} hits (top {share:.0%})"
        for kinds, hits, share in found
        if isinstance(kinds, float) and isinstance(hits, int | float) and isinstance(share, float)
    ]
    if len(spelled) < len(roles):
        return []
    before, after = (ways_told(figures) for figures in roles)
    ways = after if before == after else f"{before} and {after}, so the two do not compare"
    return [f"strategies     {spelled[0]} untrained, {spelled[1]} {name}; {ways}"]


def _selection_lines(record: EvaluationRecord) -> list[str]:
    """The checkpoint's success on the prompts that chose it."""
    if record.selection is None:
        return []
    rate, excess = record.selection.attack_success_rate, record.selection.optimism
    where = f"{record.selection.num_prompts} dev prompts that chose the checkpoint"
    return [f"optimism       {excess.spelled('+.3f')}: {rate.value:.3f} on the {where}"]


def _belief_lines(record: EvaluationRecord, name: str) -> list[str]:
    """The success corrected for the judge's errors, and that which a second judge confirms."""
    if record.belief is None:
        return []
    lines = []
    for kind in ("corrected", "confirmed"):
        roles = (record.baseline, record.attacker)
        rates = [figures.get(f"{kind}_attack_success_rate") for figures in roles]
        spelled = [rate.spelled() for rate in rates if isinstance(rate, Interval)]
        if len(spelled) == len(roles):
            lines.append(f"{kind:<15}{spelled[0]} untrained, {spelled[1]} {name}")
    kappa = record.attacker.get("judge_kappa")
    if isinstance(kappa, Interval):
        lines.append(f"judges agree   kappa {kappa.spelled()}")
    return lines
