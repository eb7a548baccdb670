"""The contract of an executor."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.executor import Executor, Weights, Work
from astra_parts.testing.contracts.common import class_of, options_of, promise


@dataclass(frozen=True)
class ScaledNumbers(Work):
    """Work that multiplies numbers by the present weight; a negative number is refused."""

    folder: Path
    key: str = "scaled"

    def prepare(self, kept: dict[str, Any]) -> list[float]:
        """The weight, which ``renew`` replaces."""
        kept[self.key] = True
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False):
            return [1.0]

    def renew(self, prepared: list[float], data: bytes) -> None:
        """Another weight."""
        prepared[0] = float(data)

    def do(self, prepared: list[float], shard: int) -> float:
        """The product."""
        if shard < 0:
            msg = f"a shard must not be negative, got {shard}; check its sign"
            raise DataError(msg)
        return prepared[0] * shard


_SHARDS = (5, 3, 8, 1, 1, 7)


def check_executor(plugin: str | type[Executor], **options: Any) -> None:
    """Raises AssertionError unless an executor may be named under ``executor``.

    - Its options refuse unknown keys; it is built as ``Class(options)``.
    - There is one result per shard, in the order of the shards; no shard gives none.
    - It reports every finished shard once.
    - Weights are those of the call: other ones, older ones and those of the folder.
    - Unless it works in this process, no worker prepares a work again when its weights change.
    - An error of the work is raised unchanged, and the next call works.
    - It works again after it is closed.
    """
    found = class_of("executor", plugin)
    executor: Executor = found(options_of("executor", found, options))
    with tempfile.TemporaryDirectory() as place:
        try:
            _check(executor, Path(place))
        finally:
            executor.close()


def _check(executor: Executor, folder: Path) -> None:
    work, told = ScaledNumbers(folder), list[int]()
    plain: list[float] = list(map(float, _SHARDS))

    def results(weights: Weights | None = None, own: Work = work) -> list[Any]:
        return executor.results(own, _SHARDS, weights=weights, advance=told.append)

    promise(executor.num_workers >= 1, "there is a worker")
    promise(executor.run(work, []) == [], "no shard gives no result")
    promise(results() == plain, "one result per shard, in order")
    promise(told == [1] * len(_SHARDS), "every shard that is done is told once")
    for version, factor in (("first", 2.0), ("second", 3.0), ("first", 2.0)):
        weights = Weights(version, str(factor).encode())
        promise(results(weights) == [factor * own for own in plain], "weights are those of now")
    if not executor.is_here:
        promise(
            len([*folder.iterdir()]) <= executor.num_workers,
            "a work is prepared once by each worker",
        )
    other = ScaledNumbers(folder, "other")
    promise(results(own=other) == plain, "another work has weights of its own")
    promise(results() == plain, "without weights it has those of the folder")
    _check_errors(executor, work)
    executor.close()
    promise(results() == plain, "a closed executor works again")


def _check_errors(executor: Executor, work: Work) -> None:
    try:
        executor.run(work, [1, -1, 2])
    except DataError as error:
        promise("must not be negative" in str(error), "an error keeps its words")
    else:
        promise(holds=False, words="an error of the work is raised")
    promise(executor.run(work, [4]) == [4.0], "the call after an error works")
