"""Which shards wait, which worker has which, and their results: the same for all executors."""

import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from pydantic import Field

from astra_core.config import Count, Section
from astra_core.errors import LostProcessError

_MIN_STRAGGLER_S = 1.0


class WorkersOptions(Section):
    """The options of all executors with workers."""

    num_workers: int = Field(2, ge=1, le=1024, description="Shards that are worked on at a time.")
    straggler_factor: float = Field(
        4.0,
        gt=1.0,
        description="A shard that takes so many times the median is given to an idle worker too; "
        "the first result counts.",
    )
    max_losses: Count = Field(
        3, description="Workers that may die of one shard before the stage fails."
    )


class Ledger:
    """The shards of one call."""

    def __init__(
        self,
        shards: Sequence[Any],
        options: WorkersOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shards = shards
        self._options = options
        self._clock = clock
        self._waiting = deque(range(len(shards)))
        self._working: dict[Hashable, tuple[int, float]] = {}
        self._done: dict[int, Any] = {}
        self._took: list[float] = []
        self._losses: Counter[int] = Counter()
        self.num_lost = 0
        self.num_issued_again = 0

    @property
    def is_complete(self) -> bool:
        """True when every shard has a result."""
        return len(self._done) == len(self.shards)

    def results(self) -> list[Any]:
        """Of each shard, in order."""
        return [self._done[number] for number in range(len(self.shards))]

    def take(self, worker: Hashable) -> int | None:
        """The number of the shard that an idle worker gets; None where it has to wait."""
        number = self._waiting.popleft() if self._waiting else self._straggling()
        if number is not None:
            self._working[worker] = number, self._clock()
        return number

    def put(self, worker: Hashable, result: Any) -> bool:
        """Notes a worker's result for its shard; True if it is the first result."""
        number, since = self._working.pop(worker)
        if number in self._done:
            return False
        self._done[number] = result
        self._took.append(self._clock() - since)
        return True

    def back(self, worker: Hashable) -> None:
        """Puts a shard that its worker refused back before all others."""
        number, _ = self._working.pop(worker)
        is_worked_on = any(number == own for own, _ in self._working.values())
        if number not in self._done and not is_worked_on:
            self._waiting.appendleft(number)

    def lose(self, worker: Hashable, reason: str) -> None:
        """Notes that a worker died, and puts back the shard that it had.

        Raises LostProcessError if as many workers as allowed have died of this shard.
        """
        if worker not in self._working:
            return
        number = self._working[worker][0]
        self.back(worker)
        self.num_lost += 1
        self._losses[number] += 1
        if self._losses[number] >= self._options.max_losses and number not in self._done:
            msg = (
                f"a shard must not end its worker, got {self._losses[number]} lost with shard "
                f"{number} ({reason}); give each less by machine.prompts_per_shard or "
                "system.tokens_per_batch, or more memory"
            )
            raise LostProcessError(msg)

    def _straggling(self) -> int | None:
        """The shard that has taken longest, if too long; never one that two have already."""
        if not self._took:
            return None
        limit = max(
            _MIN_STRAGGLER_S, self._options.straggler_factor * statistics.median(self._took)
        )
        counts = Counter(number for number, _ in self._working.values())
        slow = [
            (since, number)
            for number, since in self._working.values()
            if counts[number] == 1 and number not in self._done and self._clock() - since > limit
        ]
        if not slow:
            return None
        self.num_issued_again += 1
        return min(slow)[1]
