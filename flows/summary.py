"""The lines at the end of a run: the gain, the registered version and the decision."""

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.records.evaluation import EvaluationRecord, read_evaluation
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision

EVALUATION = Path("reports/evaluation.json")


def run_summary(
    decision: "PromotionDecision",
    *,
    seconds: float,
    evaluation: Path = EVALUATION,
    receipt: Path = RECEIPT,
) -> list[str]:
    """The lines that end ``astra run``."""
    lines = [""]
    if evaluation.is_file():
        lines += evaluation_lines(read_evaluation(evaluation))
    if receipt.is_file():
        found = read_record(receipt, RegistrationReceipt)
        lines.append(f"registered     {found.model_name} version {found.version}")
    lines.append(f"promotion      {decision.summary()}")
    lines.append(f"wall time      {duration(seconds)}")
    lines.append("look           astra ui")
    return lines


def evaluation_lines(record: EvaluationRecord) -> list[str]:
    """Attack success before and after, the gain, how diverse the probes are, each category."""
    before, after = (record.rate(role).spelled() for role in ("baseline", "attacker"))
    diverse = [figures["unique_probes"] for figures in (record.baseline, record.attacker)]
    gain, share = record.lift.spelled(), f"{record.confidence:.0%}"
    by_category = [
        f"{'' if number else 'by category':<15}{label} ({own.num_prompts} prompts): "
        f"{own.baseline.spelled()} untrained, {own.attacker.spelled()} trained"
        for number, (label, own) in enumerate(record.categories.items())
    ]
    return [
        f"attack success {before} untrained, {after} trained",
        f"gain           {gain} ({share} intervals over {record.num_prompts} prompts)",
        f"unique probes  {diverse[0]:.2f} untrained, {diverse[1]:.2f} trained",
        *by_category,
    ]


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
