"""Waiting for a service: every wait has a time limit, and knows all that can end it.

A service's own words are read as one of six outcomes. A word that is none of them keeps the wait
going until its limit, so that a new word of a service cannot make it last for ever.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["succeeded", "failed", "cancelled", "refused", "expired", "timed_out"]

_WORDS: dict[str, Outcome] = {
    "succeeded": "succeeded",
    "success": "succeeded",
    "completed": "succeeded",
    "failed": "failed",
    "error": "failed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "refused": "refused",
    "rejected": "refused",
    "blocked": "refused",
    "expired": "expired",
    "timed_out": "timed_out",
    "timeout": "timed_out",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a service says of a piece of work.

    Attributes:
        status: In the service's word.
        detail: Its reason, in one line.
        record: What it returns besides, such as a model's name.
    """

    status: str
    detail: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return _WORDS.get(self.status.strip().lower().replace(" ", "_").replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a wait ended."""

    outcome: Outcome
    detail: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


def wait_for(
    look: Callable[[], Seen],
    *,
    limit_s: float,
    every_s: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ending:
    """How a piece of work ended; it is looked at once more when the limit is reached.

    Args:
        look: Asks the service; an error of it passes through.
        limit_s: Seconds from now.
        every_s: Seconds between two looks.
        clock: Seconds that never go back.
        sleep: Passes seconds.
    """
    end = clock() + limit_s
    while True:
        is_last = clock() >= end
        seen = look()
        if seen.outcome is not None:
            return Ending(seen.outcome, seen.detail, seen.record)
        if is_last:
            detail = f"still {seen.status!r} after {limit_s:g} s"
            return Ending("timed_out", detail, seen.record)
        sleep(max(0.0, min(every_s, end - clock())))
