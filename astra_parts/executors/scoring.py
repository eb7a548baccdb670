"""Texts and exchanges rated by an executor, whose workers each build their own scorer once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from astra_core.config import Choice
from astra_core.executor import Executor, Work
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement, as_judge, checked_judgements
from astra_core.registry import build
from astra_core.scorer import Scorer, checked_scores, version_of


@dataclass(frozen=True)
class ScoringWork(Work):
    """Rates the items of a shard."""

    scorer: Choice
    rate: Callable[[Any, Sequence[Any]], list[Any]]

    @cached_property
    def key(self) -> str:
        """Names the scorer and what it rates."""
        return record_digest([self.rate.__name__, self.scorer.model_dump(mode="json")])

    def prepare(self, kept: dict[str, Any]) -> Scorer | Judge:
        """The scorer or judge."""
        del kept
        built: Scorer | Judge = build("scorer", self.scorer)
        return built

    def do(self, prepared: Scorer | Judge, shard: Sequence[Any]) -> list[Any]:
        """One rating per item."""
        return self.rate(prepared, shard)


class Scoring:
    """A scorer or judge, and the executor that runs it."""

    def __init__(self, scorer: Choice, executor: Executor, own: Scorer | Judge) -> None:
        self._scorer = scorer
        self.executor = executor
        self.own = own

    @classmethod
    def of(cls, scorer: Choice, executor: Choice) -> Self:
        """The scorer and this process's executor of these names; the scorer is built here too."""
        return cls(scorer, executor_of(executor), build("scorer", scorer))

    @property
    def version(self) -> str:
        """Of the scorer; only scores of equal versions are compared."""
        return version_of(self.own)

    def scores(self, texts: Sequence[str], *, at_once: int) -> list[float]:
        """One score per text, in order; the batches are the same for every executor."""
        batches = [texts[first : first + at_once] for first in range(0, len(texts), at_once)]
        return self._rate_batches(checked_scores, batches, title="scoring")

    def judgements(self, batches: Sequence[Sequence[Exchange]]) -> list[Judgement]:
        """One judgement per exchange, in order; the batches are the same for every executor."""
        return self._rate_batches(_judgements, batches, title="second judge")

    def _rate_batches(
        self,
        rate: Callable[[Any, Sequence[Any]], list[Any]],
        batches: Sequence[Sequence[Any]],
        *,
        title: str,
    ) -> list[Any]:
        if self.executor.is_here:
            return [each for batch in batches for each in rate(self.own, batch)]
        found = self.executor.run(ScoringWork(self._scorer, rate), batches, title=title)
        return [each for batch in found for each in batch]


def _judgements(judge: Scorer | Judge, exchanges: Sequence[Exchange]) -> list[Judgement]:
    return checked_judgements(as_judge(judge), exchanges)


_executors: dict[str, Executor] = {}


def executor_of(choice: Choice) -> Executor:
    """The executor that a choice names; an equal choice gives the same one, with its workers."""
    key = record_digest(choice.model_dump(mode="json"))
    if key not in _executors:
        _executors[key] = build("executor", choice)
    return _executors[key]
