"""Exchanges that are judged by an executor: a judge of its own in each worker, built once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from astra_core.config import Choice
from astra_core.executor import Executor, Work
from astra_core.executors.shared import all_done, executor_of
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement, as_judge, checked_judgements
from astra_core.registry import build


@dataclass(frozen=True)
class JudgingWork(Work):
    """Judges the exchanges of a shard."""

    judge: Choice

    @cached_property
    def key(self) -> str:
        """Names the judge."""
        return record_digest(["judge", self.judge.model_dump(mode="json")])

    def prepare(self, kept: dict[str, Any]) -> Judge:
        """The judge."""
        del kept
        return as_judge(build("scorer", self.judge))

    def do(self, prepared: Judge, shard: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange."""
        return checked_judgements(prepared, shard)


class Judging:
    """A judge, and who works for it.

    Args:
        judge: Names it.
        executor: Has its batches done.
        own: The judge in this process.
    """

    def __init__(self, judge: Choice, executor: Executor, own: Judge) -> None:
        self._work = JudgingWork(judge)
        self.executor = executor
        self.own = own

    @classmethod
    def of(cls, judge: Choice, executor: Choice) -> Self:
        """The judge and this process's executor of these names; the judge is built here too.

        Raises:
            ConfigurationError: One of them cannot be built.
        """
        return cls(judge, executor_of(executor), as_judge(build("scorer", judge)))

    def judgements(self, batches: Sequence[Sequence[Exchange]]) -> list[Judgement]:
        """One judgement per exchange, in order; the batches are the same for every executor."""
        return all_done(self.executor, self._work, batches, own=self.own, title="second judge")
