"""``astra.json`` in the folder of an attacker: what its training recorded about it."""

from dataclasses import dataclass
from typing import Literal

Kept = Literal["best", "last"]
"""Which of its attackers a training exports."""

ATTACKER_FILE = "astra.json"


@dataclass(frozen=True, slots=True)
class AttackerNote:
    """Where an attacker comes from; a folder that no training exported has at most a digest.

    Attributes:
        digest: The digest of its weights, and of which agent plays which turn.
        run_key: Digest of the training's parameters, inputs and code.
        kept: Whether it is the best of those evaluated, or the last.
        system_precision: The precision in which it talked, as a trial chose it.
    """

    digest: str
    run_key: str | None = None
    metric: str | None = None
    value: float | None = None
    kept: Kept = "best"
    training_step: int | None = None
    system_precision: str | None = None
