"""``astra.json`` in the folder of an attacker: what the training that exported it says of it."""

from dataclasses import dataclass
from typing import Literal

Kept = Literal["best", "last"]
"""Which of its attackers a training exports."""

ATTACKER_FILE = "astra.json"


@dataclass(frozen=True, slots=True)
class AttackerNote:
    """Where an attacker comes from; a folder that no training exported has a digest at most.

    Attributes:
        digest: Of its weights, and of who plays which turn.
        run_key: Digest of the training's parameters, inputs and code.
        metric: What the best was chosen by.
        value: Its metric, where it was evaluated.
        kept: Whether it is the best of those evaluated, or the last.
        training_step: Training steps it had learned for.
        system_precision: That it talked in, as a trial settled it.
    """

    digest: str
    run_key: str | None = None
    metric: str | None = None
    value: float | None = None
    kept: Kept = "best"
    training_step: int | None = None
    system_precision: str | None = None
