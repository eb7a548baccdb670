"""The executors of this process: equal choices share one, with its workers."""

from collections.abc import Sequence
from typing import Any

from astra_core.config import Choice
from astra_core.executor import Executor, Work
from astra_core.files import record_digest
from astra_core.registry import build

_executors: dict[str, Executor] = {}


def executor_of(choice: Choice) -> Executor:
    """The executor that a choice names; an equal choice gives the same one, with its workers.

    Raises:
        ConfigurationError: It cannot be built.
    """
    key = record_digest(choice.model_dump(mode="json"))
    if key not in _executors:
        _executors[key] = build("executor", choice)
    return _executors[key]


def all_done(
    executor: Executor, work: Work, batches: Sequence[Sequence[Any]], *, own: Any, title: str
) -> list[Any]:
    """One result per item, in order; the batches are the same for every executor.

    Args:
        executor: Does the work, batch by batch.
        work: Gives one result per item of a batch.
        batches: The items.
        own: What ``work.prepare`` would build, for work in this process.
        title: Of the progress bar.
    """
    if executor.is_here:
        return [each for batch in batches for each in work.do(own, batch)]
    found = executor.run(work, batches, title=title)
    return [each for batch in found for each in batch]
