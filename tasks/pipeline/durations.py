"""How long each stage took when it last ran, so that the next run can say how long it will take."""

from contextlib import suppress
from pathlib import Path

from astra_core.errors import DiskFullError
from astra_core.files import read_json, write_json

FOLDER = Path(".astra/durations")
GROWING = frozenset({"rollouts", "training", "evaluation"})
"""Stages whose time grows with the number of replies that they ask the target for."""


def note_duration(stage: str, seconds: float, *, amount: float = 1.0) -> None:
    """Remembers how long a stage took, if there is room for it.

    ``amount``: the amount of work, in any unit that the time is proportional to.
    """
    with suppress(DiskFullError):
        write_json({"seconds": round(seconds, 3), "amount": amount}, FOLDER / f"{stage}.json")


def expected_seconds(stage: str, *, amount: float = 1.0) -> float | None:
    """Seconds for a stage with this amount of work, from its last run; None if it never ran."""
    try:
        record = read_json(FOLDER / f"{stage}.json")
        seconds, before = float(record["seconds"]), float(record["amount"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return seconds * amount / before if before > 0.0 else seconds
