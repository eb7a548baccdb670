"""The trees of a rollouts file, read when they are asked for."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

from astra_core.rollout import Graph
from tasks.records.rollouts import stream_rollouts


class StoredRollouts(Sequence[Graph]):
    """A rollouts file as a sequence that keeps no tree in memory; each use reads the file again.

    Args:
        path: The file.

    Raises:
        DataError: The file is missing, or does not hold whole trees.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The whole file is read now, so that a broken tree is reported before any work is done.
        self._length = sum(1 for _ in stream_rollouts(path))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Graph]:
        return stream_rollouts(self._path)

    @overload
    def __getitem__(self, place: int) -> Graph: ...
    @overload
    def __getitem__(self, place: slice) -> list[Graph]: ...
    def __getitem__(self, place: int | slice) -> Graph | list[Graph]:
        chosen = range(self._length)[place]
        if isinstance(chosen, int):
            return next(islice(self, chosen, None))
        wanted = set(chosen)
        found = {at: graph for at, graph in enumerate(self) if at in wanted}
        return [found[at] for at in chosen]
