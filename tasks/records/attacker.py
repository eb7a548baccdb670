"""``astra.json`` in the folder of an attacker: what its training recorded about it."""

from dataclasses import dataclass
from typing import Literal

Kept = Literal["best", "last"]
"""Which of its attackers a training exports."""

ATTACKER_FILE = "astra.json"


@dataclass(frozen=True, slots=True)
class AttackerNote:
    """Where an attacker comes from; a folder that no training exported has at most a digest."""

    digest: str
    run_key: str | None = None
    metric: str | None = None
    value: float | None = None
    kept: Kept = "best"
    training_step: int | None = None
    system_precision: str | None = None
