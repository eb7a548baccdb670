"""The scores of one tree level: one batch, or the probes' while the target still speaks."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from astra_core.scorer import Scorer, checked_scores
from astra_core.system import System


class LevelScoring:
    """Scores a level's probes from entry on where that overlaps, and the replies when they come.

    The scorer never has two calls at once. A failure of the scorer surfaces in ``collect`` either
    way, and what it says of the probes of a target that fell silent is dropped.

    Args:
        system: Whose scorer judges.
        probes: Of the level.

    Attributes:
        waited_s: Seconds in which nothing but the scorer was waited for.
    """

    def __init__(self, system: System, probes: Sequence[str]) -> None:
        self._scorer: Scorer = system.scorer
        self._probes = probes
        self._worker = ThreadPoolExecutor(max_workers=1) if overlaps(system) else None
        self._ahead: Future[list[float]] | None = None
        self.waited_s = 0.0

    def __enter__(self) -> Self:
        """Starts on the probes where that overlaps with what the target does next."""
        if self._worker is not None and self._probes:
            self._ahead = self._worker.submit(checked_scores, self._scorer, self._probes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Returns once the scorer is at rest."""
        start = time.perf_counter()
        if self._worker is not None:
            self._worker.shutdown()
        self.waited_s += time.perf_counter() - start

    def collect(self, replies: Sequence[str]) -> tuple[list[float], list[float]]:
        """The scores of the replies and those of the probes.

        Raises:
            ScorerError: The scorer could not be reached or gave something that is no score.
        """
        start = time.perf_counter()
        if self._ahead is None:
            scores = checked_scores(self._scorer, [*replies, *self._probes])
            own = scores[len(replies) :]
        else:
            own = self._ahead.result()
            scores = checked_scores(self._scorer, replies)
        self.waited_s += time.perf_counter() - start
        return scores[: len(replies)], own


def overlaps(system: System) -> bool:
    """True when scorer and target do not share a processor, so that both can work at once."""
    place = system.scorer.works_on
    return place == "elsewhere" or (place == "cpu" and system.target.device.type != "cpu")
