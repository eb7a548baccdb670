"""The end of a run as a person reads it: what was gained, what is registered, what was decided."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.files import read_json

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision

EVALUATION = Path("reports/evaluation.json")
RECEIPT = Path("reports/registration.json")


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
        lines += evaluation_lines(read_json(evaluation))
    if receipt.is_file():
        record = read_json(receipt)
        lines.append(f"registered     {record['model_name']} version {record['version']}")
    lines.append(f"promotion      {decision.summary()}")
    lines.append(f"wall time      {duration(seconds)}")
    lines.append("look           astra ui")
    return lines


def evaluation_lines(record: Mapping[str, Any]) -> list[str]:
    """Attack success before and after, the gain, and how diverse the probes are."""
    share = f"{record['confidence']:.0%}" if "confidence" in record else "bootstrap"
    attacker, baseline = record["attacker"], record["baseline"]
    before, after = (spelled(role["attack_success_rate"]) for role in (baseline, attacker))
    diverse = [role["unique_probes"] for role in (baseline, attacker)]
    gain = spelled(record["lift"])
    return [
        f"attack success {before} untrained, {after} trained",
        f"gain           {gain} ({share} intervals over {record['num_prompts']} prompts)",
        f"unique probes  {diverse[0]:.2f} untrained, {diverse[1]:.2f} trained",
    ]


def spelled(interval: Mapping[str, float]) -> str:
    """A value with its interval, as fractions."""
    return f"{interval['value']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
