"""An executor gets shards of work done, in this process or by other workers.

``machine.prompts_per_shard`` decides in advance what each shard holds, so the results are the same
for any number of workers. ``astra_parts.testing.check_executor`` checks everything that is promised
here.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

from astra_core.extensions.plugin_class import Plugin

Advance = Callable[[int], None]
Show = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar of this title and length, and says how it is moved."""

_SHOW: ContextVar[Show | None] = ContextVar("show", default=None)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model that have changed since its folder was written.

    ``version``: names them; a worker with another version refuses to work.
    """

    version: str
    data: bytes = field(repr=False)


class Work(ABC):
    """What is done to every shard; it can be pickled, and so can its shards and results."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The name of the work; a worker prepares work of one key once."""

    @property
    def holder(self) -> str:
        """The name of what ``renew`` changes: works with one holder share its weights."""
        return self.key

    @abstractmethod
    def prepare(self, kept: dict[str, Any]) -> Any:
        """The things that ``do`` needs, loaded once per worker.

        ``kept``: objects that works of this worker share; empty at first.
        """

    def renew(self, prepared: Any, data: bytes) -> None:  # noqa: B027  # most have no weights
        """Loads other weights into what ``prepare`` returned."""

    @abstractmethod
    def do(self, prepared: Any, shard: Any) -> Any:
        """The result of one shard; the same whenever and wherever it is asked for."""


class Executor(Plugin):
    """Gets shards done by one or several workers."""

    is_here: ClassVar[bool] = False
    """True where this process does the work itself: then nothing is loaded a second time."""

    @property
    def num_workers(self) -> int:
        """How many shards are worked on at a time."""
        return 1

    @abstractmethod
    def results(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None, advance: Advance
    ) -> list[Any]:
        """The result of ``work`` for each shard, in order.

        If a worker dies, another one does its shard again. An error of the work itself is raised
        unchanged, and no further shard is begun.

        ``weights``: those to work with; None for those that ``work`` prepares.

        Raises LostProcessError if too many workers died, or none is left.
        """

    def run(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None = None, title: str = ""
    ) -> list[Any]:
        """The ``results``, with one progress bar over all of them.

        Another thread waits until these are done.
        """
        turn = vars(self).setdefault("_turn", threading.RLock())
        with turn, _bar(title or "working", len(shards)) as advance:
            return self.results(work, shards, weights=weights, advance=advance)

    def close(self) -> None:  # an executor without workers has nothing to end
        """Ends the workers; another ``run`` starts new ones."""


class LocalExecutor(Executor):
    """An executor without other processes or copies of a model."""

    is_here: ClassVar[bool] = True

    def results(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None, advance: Advance
    ) -> list[Any]:
        """See ``Executor.results``."""
        prepared = work.prepare({}) if shards else None
        if shards and weights is not None:
            work.renew(prepared, weights.data)
        found = []
        for shard in shards:
            found.append(work.do(prepared, shard))
            advance(1)
        return found


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """While the body runs, executors show their progress by ``show``."""
    before = _SHOW.set(show)
    try:
        yield
    finally:
        _SHOW.reset(before)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    show = _SHOW.get()
    if show is None or total < 2:
        yield lambda _: None
        return
    with show(title, total) as advance:
        yield advance
