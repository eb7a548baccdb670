"""The cost of a neighbour on the same cores, with threads that wait as in a stage or in libgomp.

``python -m benchmarks neighbours`` lets processes of as many threads as there are cores roll out
the built-in model: alone, and beside one that does the same at the same time. libgomp by default
lets a thread that waits for another one spin for milliseconds, which both pay for; stages limit
that by whether they start beside a neighbour (``tasks/machine/thread_waits.py``). All cases take
turns in one run. The exit status is 1 when a limit is exceeded.
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch

from astra_core.config import Choice, SystemConfiguration
from astra_core.engine.memory import keep_freed_memory
from astra_core.registry import build
from astra_core.rollout import Prompt
from astra_core.system import System
from benchmarks.figures import Figure, table
from benchmarks.processor import machine
from tasks.builtin.shipped import FOLDER, PACKAGE
from tasks.machine.tables import markdown
from tasks.machine.thread_waits import FREE

MOST_BESIDE_A_NEIGHBOUR = 2.2
"""Limit as a multiple of the quiet time; two on the same cores need at least twice the time."""
MOST_LOST_PERCENT = 5.0
"""Of the time on a quiet machine, by waking threads that would still have been spinning."""
STAGE, LATER, LIBGOMP = WAITS = (
    "as in a stage",
    "as in a stage that was there first",
    "as in libgomp",
)
DEFAULTS = {"GOMP_SPINCOUNT": "300000"}
"""libgomp's default; see its manual."""
TOPICS = ("sea", "house", "war", "city", "dog", "law", "game", "king")
TREES = {"tree_width": 4, "tree_depth": 2, "num_responses": 3}
HEADER = (
    "a rollout, threads wait",
    "wall s, quiet",
    "beside a neighbour",
    "x",
    "CPU s, quiet",
    "CPU s, beside",
)


class Spent(NamedTuple):
    """The time of one rollout.

    Attributes:
        wall_s: Wall-clock time.
        cpu_s: Processor time, on all threads.
    """

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """Rollouts with one way of waiting, and their times.

    Attributes:
        quiet: Times alone.
        busy: Times beside a neighbour that started alone.
    """

    quiet: Sequence[Spent]
    busy: Sequence[Spent]

    @property
    def ratio(self) -> float:
        """Busy over quiet wall-clock time."""
        return _median(self.busy).wall_s / _median(self.quiet).wall_s

    def row(self, name: str) -> tuple[str, ...]:
        """A row of the table."""
        quiet, busy = _median(self.quiet), _median(self.busy)
        return (
            name,
            *(f"{value:.2f}" for value in (quiet.wall_s, busy.wall_s, self.ratio)),
            *(f"{value:.2f}" for value in (quiet.cpu_s, busy.cpu_s)),
        )


class Worker:
    """A process that rolls out on request, and its answers."""

    def __init__(self, num_threads: int, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own code
            [sys.executable, "-m", "benchmarks", "neighbours", "--worker", str(num_threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environment},
        )
        self._answer()

    def __enter__(self) -> Self:
        """The worker, after it has loaded its model."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def rolled_out(self) -> Spent:
        """The time of one rollout that starts now."""
        self._ask("once")
        return Spent(*self._answer())

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Runs the body while this process rolls out again and again."""
        self._ask("again")
        self._answer()
        try:
            yield
        finally:
            self._ask("enough")
            self._answer()

    def _ask(self, word: str) -> None:
        print(word, file=self._process.stdin, flush=True)

    def _answer(self) -> Any:
        return json.loads(self._process.stdout.readline())  # type: ignore[union-attr]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the table and the limits are printed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks neighbours", description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.worker:
        _work(asked.worker)
        return 0
    cases = measured(num_threads=asked.threads, repetitions=asked.repetitions)
    found = figures(cases)
    print(f"{machine()}\n")
    print(markdown(HEADER, [case.row(name) for name, case in cases.items()]))
    print(f"\n{table(found)}")
    return int(not all(figure.is_kept for figure in found))


def measured(*, num_threads: int, repetitions: int) -> dict[str, Case]:
    """A case for each of ``WAITS``; they take turns."""
    unset = {name: value for name, value in os.environ.items() if name not in FREE}
    found: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in WAITS}
    with ExitStack() as stack:

        def start(**settings: str) -> Worker:
            return stack.enter_context(Worker(num_threads, {**unset, **settings}))

        first, neighbour = start(), start()
        with neighbour.busy():
            second = start()
        default, other = start(**DEFAULTS), start(**DEFAULTS)
        for _ in range(repetitions):
            quiet = first.rolled_out()
            found[STAGE].append((quiet, _beside(neighbour, second)))
            found[LATER].append((quiet, _beside(neighbour, first)))
            found[LIBGOMP].append((default.rolled_out(), _beside(other, default)))
    return {name: Case(*zip(*pairs, strict=True)) for name, pairs in found.items()}


def _beside(neighbour: Worker, worker: Worker) -> Spent:
    with neighbour.busy():
        return worker.rolled_out()


def figures(cases: Mapping[str, Case]) -> list[Figure]:
    """Figures with limits for threads that wait as in a stage, and the figures of the others."""
    ours, others = cases[STAGE], cases[LIBGOMP]
    # The minimum is nearest to a quiet machine, whatever else was running.
    least, least_other = (min(case.quiet).wall_s for case in (ours, others))
    lost = 100.0 * (least / least_other - 1.0)
    return [
        Figure(f"beside a neighbour, {STAGE}", ours.ratio, "x", MOST_BESIDE_A_NEIGHBOUR),
        *(
            Figure(f"beside a neighbour, {name}", cases[name].ratio, "x")
            for name in (LATER, LIBGOMP)
        ),
        Figure("lost on a quiet machine", lost, "%", MOST_LOST_PERCENT),
    ]


def _median(spent: Sequence[Spent]) -> Spent:
    return Spent(*(statistics.median(column) for column in zip(*spent, strict=True)))


def _work(num_threads: int) -> None:
    """Answers the requests of a ``Worker``, with a line of JSON each, until it is ended."""
    roll_out = _rollout(num_threads)
    roll_out()
    print("[]", flush=True)
    for asked in sys.stdin:
        answer: Sequence[float] = ()
        if asked == "once\n":
            answer = _spent(roll_out)
        elif asked == "again\n":
            print("[]", flush=True)
            while not select.select([sys.stdin], [], [], 0)[0]:
                roll_out()
            sys.stdin.readline()
        print(json.dumps(answer), flush=True)


def _rollout(num_threads: int) -> Callable[[], Any]:
    """Rolls the built-in model out against itself once, on so many threads."""
    keep_freed_memory()
    shipped = PACKAGE / FOLDER
    system = System.load(SystemConfiguration(), attacker=shipped, target=shipped, reference=shipped)
    torch.set_num_threads(num_threads)
    prompts = [
        Prompt(f"{index:016x}", f"tell me about the {topic}") for index, topic in enumerate(TOPICS)
    ]
    sampler = build(
        "sampler",
        Choice(name="tree", options=TREES),
        system=system,
        prompts=prompts,
        reward=build("reward", Choice(name="adversarial")),
        seed=0,
    )
    return lambda: sampler.roll_out(prompts, iteration=0)


def _spent(call: Callable[[], Any]) -> Spent:
    begun, start = time.process_time(), time.perf_counter()
    call()
    return Spent(time.perf_counter() - start, time.process_time() - begun)
