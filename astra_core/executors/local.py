"""The default executor: this process does all shards itself, one after the other."""

from collections.abc import Sequence
from typing import Any, ClassVar

from astra_core.executor import Advance, Executor, Weights, Work
from astra_core.executors.bench import Bench, Task


class LocalExecutor(Executor):
    """An executor without other processes or copies of a model."""

    is_here: ClassVar[bool] = True

    def results(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None, advance: Advance
    ) -> list[Any]:
        """See ``Executor.results``."""
        bench, found = Bench(), []
        for shard in shards:
            found.append(bench.do(Task.of(work, weights, shard), work, weights))
            advance(1)
        return found
