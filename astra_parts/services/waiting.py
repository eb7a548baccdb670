"""Waiting for a service: every wait has a time limit, and ends in one of a few known ways.

A service's own status words are mapped to six outcomes. An unknown word continues the wait until
its limit, so that a service's new word cannot make it last for ever.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Outcome = Literal["succeeded", "failed", "cancelled", "refused", "expired", "timed_out"]

# Beside the outcomes' own names.
_WORDS: dict[str, Outcome] = {each: each for each in get_args(Outcome)} | {
    "success": "succeeded",
    "completed": "succeeded",
    "error": "failed",
    "canceled": "cancelled",
    "rejected": "refused",
    "blocked": "refused",
    "timeout": "timed_out",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A service's report on a piece of work."""

    status: str
    detail: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return _WORDS.get(self.status.strip().lower().replace(" ", "_").replace("-", "_"))


def wait_for(
    look: Callable[[], Seen],
    *,
    limit_s: float,
    every_s: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """The last report on a piece of work; there is one last check when the limit is reached.

    ``look``: asks the service; its error is raised.

    Returns the report, whose status is the outcome: ``timed_out`` where the work has not ended.
    """
    end = clock() + limit_s
    while True:
        is_last = clock() >= end
        seen = look()
        if seen.outcome is not None:
            return replace(seen, status=seen.outcome)
        if is_last:
            detail = f"still {seen.status!r} after {limit_s:g} s"
            return Seen("timed_out", detail, seen.record)
        sleep(max(0.0, min(every_s, end - clock())))
