"""Seconds of several ways to do one thing, measured in turn: a busy machine affects all."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.allocators import default_allocator


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort spent on figures.

    Attributes:
        threads: Torch's threads, for wall-clock time.
        repetitions: Repetitions of our ways.
        plain_repetitions: Repetitions of the others, which take ten times as long.
        trees: Trees that our ways process at once.
        has_one_thread: Whether processor time at one thread is taken too.
    """

    threads: int = os.cpu_count() or 1
    repetitions: int = 5
    plain_repetitions: int = 3
    trees: int = 8
    has_one_thread: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do it.

    Attributes:
        name: The name for people.
        call: Does it once.
        repetitions: How often it is called.
        units: Number of trees, tokens or the like of one call.
        is_ours: False for others' code, run as in its own process; see ``default_allocator``.
    """

    name: str
    call: Callable[[], Any]
    repetitions: int
    units: int = 1
    is_ours: bool = True


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one unit in one way.

    Attributes:
        name: The name of the way.
        wall_s: Median wall clock at all threads.
        cpu_s: Processor time at one thread, which a busy neighbour hardly moves; None if not taken.
        repetitions: Repetitions behind the median.
    """

    name: str
    wall_s: float
    cpu_s: float | None
    repetitions: int


def costs(ways: Sequence[Way], effort: Effort) -> list[Cost]:
    """The cost of each way; the ways take turns in one process."""
    walls, cpu = _medians(ways, effort.threads, max(way.repetitions for way in ways))
    if effort.threads != 1:
        cpu = _medians(ways, 1, 1)[1] if effort.has_one_thread else {}
    return [Cost(way.name, walls[way.name], cpu.get(way.name), way.repetitions) for way in ways]


def _medians(
    ways: Sequence[Way], num_threads: int, turns: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Wall clock and processor time of one unit of each way.

    A turn of the others frees the memory that ours keeps, so our next call is not timed.
    """
    walls: dict[str, list[float]] = {way.name: [] for way in ways}
    cpu: dict[str, list[float]] = {way.name: [] for way in ways}
    is_cold = False
    with threads(num_threads):
        for way in (way for turn in range(turns) for way in ways if turn < way.repetitions):
            if way.is_ours and is_cold:
                way.call()
            is_cold = not way.is_ours
            with nullcontext() if way.is_ours else default_allocator():
                begun = time.process_time()
                walls[way.name].append(seconds(way.call) / way.units)
                cpu[way.name].append((time.process_time() - begun) / way.units)
            told = f"wall {walls[way.name][-1]:.3g} s, CPU {cpu[way.name][-1]:.3g} s"
            print(f"  {way.name}: {told}", file=sys.stderr, flush=True)
    return (
        {name: statistics.median(own) for name, own in walls.items()},
        {name: statistics.median(own) for name, own in cpu.items()},
    )


def seconds(call: Callable[[], Any]) -> float:
    """Wall clock of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs the body with so many threads of torch, then restores their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
