"""Texts scored by an executor, whose workers each build their own scorer once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from astra_core.config import Choice
from astra_core.executor import Executor, Work
from astra_core.executors.shared import all_done, executor_of
from astra_core.files import record_digest
from astra_core.registry import build
from astra_core.scorer import Scorer, checked_scores, version_of


@dataclass(frozen=True)
class ScoringWork(Work):
    """Scores the texts of a shard."""

    scorer: Choice

    @cached_property
    def key(self) -> str:
        """Names the scorer."""
        return record_digest(["scorer", self.scorer.model_dump(mode="json")])

    def prepare(self, kept: dict[str, Any]) -> Scorer:
        """The scorer."""
        del kept
        built: Scorer = build("scorer", self.scorer)
        return built

    def do(self, prepared: Scorer, shard: Sequence[str]) -> list[float]:
        """One score per text."""
        return checked_scores(prepared, shard)


class Scoring:
    """A scorer and the executor that runs it.

    Args:
        scorer: The choice that names the scorer.
        executor: Gets its batches done.
        own: The scorer in this process.
    """

    def __init__(self, scorer: Choice, executor: Executor, own: Scorer) -> None:
        self._work = ScoringWork(scorer)
        self.executor = executor
        self._own = own

    @classmethod
    def of(cls, scorer: Choice, executor: Choice) -> Self:
        """The scorer and this process's executor of these names; the scorer is built here too.

        Raises:
            ConfigurationError: One of them cannot be built.
        """
        return cls(scorer, executor_of(executor), build("scorer", scorer))

    @property
    def version(self) -> str:
        """Of the scorer; only scores of equal versions are compared."""
        return version_of(self._own)

    def scores(self, texts: Sequence[str], *, at_once: int) -> list[float]:
        """One score per text, in order; the batches are the same for every executor."""
        batches = [texts[first : first + at_once] for first in range(0, len(texts), at_once)]
        return all_done(self.executor, self._work, batches, own=self._own, title="scoring")
