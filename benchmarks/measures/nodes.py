"""How much faster two Ray nodes of one core are than one process, and what a killed node costs.

``python -m benchmarks nodes`` starts two real Ray nodes of one core each on this machine. This
process, without Ray and on one thread, and the two nodes roll out the same shards in turn. In the
last round one node is killed with SIGKILL while it works. Efficiency is the share of the ideal,
which is twice as fast as the one process. By the clock it also tells of whatever else runs on the
machine, so it is taken by processor time too: the share of time in which workers have a shard,
times the processor seconds of the one process in those of all of Ray's processes and the driver.
The exit status is 1 if that is below 85 %, or if any result differs from the one process's.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import psutil

from astra_core.errors.packages import require_package
from astra_parts.arguments import LineParser, at_least_one
from astra_parts.executors.on_ray import RayExecutor
from benchmarks.measures.scaling import ShapeWork
from benchmarks.processor import machine
from benchmarks.ray_nodes import Nodes
from benchmarks.shapes import GPT2_SMALL, SHAPES
from tasks.machine.tables import markdown

LEAST = 0.85
WORKERS = 2
_NEVER = 1e6  # no shard is a straggler: nothing is done twice

Shard = tuple[int, int]


class NodesWork(ShapeWork):
    """Rolls out trees of a shape, and says what that took by the processor too."""

    def do(self, prepared: Any, shard: Shard) -> tuple[float, float, list[Any]]:  # type: ignore[override]
        """Seconds of the shard by the clock and by the processor, and its graphs."""
        used = time.process_time()
        seconds, graphs = super().do(prepared, shard)
        return seconds, time.process_time() - used, graphs


@dataclass(frozen=True, slots=True)
class Round:
    """All shards, done once.

    Attributes:
        seconds: Until the last result.
        processor_s: Of all processes that took part.
        shard_s: Of each shard in its worker, by the clock.
        graphs: Of all shards, in order.
    """

    seconds: float
    processor_s: float
    shard_s: Sequence[float]
    graphs: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Killed:
    """A round in which a node was killed.

    Attributes:
        round: What came of it.
        killed_s: When, from its begin.
        num_left: Shards without a result then.
        num_lost: Workers that died with a shard.
    """

    round: Round
    killed_s: float
    num_left: int
    num_lost: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints efficiency and what the kill cost; the exit status."""
    parser = LineParser(prog="python -m benchmarks nodes", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=GPT2_SMALL.name)
    parser.add_argument("--shards", type=at_least_one, default=8, help="of one round, even")
    parser.add_argument("--prompts", type=at_least_one, default=2, help="of a shard")
    parser.add_argument("--rounds", type=at_least_one, default=2, help="of each, in turn")
    asked = parser.parse_args(arguments)
    require_package("ray", subject="the benchmark of nodes", extra="ray")
    shards = [(number * asked.prompts, asked.prompts) for number in range(asked.shards)]
    with Nodes() as nodes:
        pairs, killed = measured(NodesWork(asked.shape), shards, nodes, num_rounds=asked.rounds)
    text, share = efficiency(pairs)
    expected = pairs[0][0].graphs
    rounds = [*(own for pair in pairs for own in pair), killed.round]
    num_other = sum(own.graphs != expected for own in rounds)
    print(f"{machine()}\n\n{text}\n\n{cost_of_the_kill(killed)}\n")
    print(f"rounds whose graphs differ from the first's: {num_other} of {len(rounds)}")
    return int(share < LEAST or num_other > 0)


def measured(
    work: NodesWork, shards: Sequence[Shard], nodes: Nodes, *, num_rounds: int
) -> tuple[list[tuple[Round, Round]], Killed]:
    """Rounds of one process and of both nodes in turn, and one in which a node is killed."""
    prepared = work.prepare({})
    options = RayExecutor.Options(
        num_workers=WORKERS, straggler_factor=_NEVER, address=nodes.address
    )
    executor = RayExecutor(options)
    # The first call loads models, and memory is new to it.
    work.do(prepared, shards[0])
    executor.run(work, [*shards[:WORKERS]] * 2)
    pairs = [
        (_alone(work, prepared, shards), _on_nodes(executor, work, shards, nodes))
        for _ in range(num_rounds)
    ]
    killed = _with_a_kill(executor, work, shards, nodes)
    executor.close()
    return pairs, killed


def _alone(work: NodesWork, prepared: Any, shards: Sequence[Shard]) -> Round:
    start, used = time.perf_counter(), time.process_time()
    done = [work.do(prepared, shard) for shard in shards]
    return _round(time.perf_counter() - start, time.process_time() - used, done)


def _on_nodes(
    executor: RayExecutor, work: NodesWork, shards: Sequence[Shard], nodes: Nodes, **how: Any
) -> Round:
    start, used, before = time.perf_counter(), time.process_time(), _processor_s(nodes)
    advance = how.get("advance", lambda _: None)
    done = executor.results(work, shards, weights=None, advance=advance)
    seconds, own = time.perf_counter() - start, time.process_time() - used
    after = _processor_s(nodes)
    others = sum(value - before.get(pid, 0.0) for pid, value in after.items())
    return _round(seconds, own + others, done)


def _with_a_kill(
    executor: RayExecutor, work: NodesWork, shards: Sequence[Shard], nodes: Nodes
) -> Killed:
    """The node dies when a quarter is done, and both workers have a shard again."""
    start = time.perf_counter()
    done: list[int] = []
    times: list[float] = []

    def advance(count: int) -> None:
        done.append(count)
        if len(done) == max(len(shards) // 4, 1):
            times.append(time.perf_counter() - start)
            nodes.kill_one()

    found = _on_nodes(executor, work, shards, nodes, advance=advance)
    num_lost = executor.ledger.num_lost if executor.ledger else 0
    return Killed(found, times[0], len(shards) - max(len(shards) // 4, 1), num_lost)


def _round(seconds: float, processor_s: float, done: Sequence[Any]) -> Round:
    graphs = [graph for _, _, own in done for graph in own]
    return Round(seconds, processor_s, [own for own, _, _ in done], graphs)


def _processor_s(nodes: Nodes) -> dict[int, float]:
    """Of every process of the nodes so far, by its number."""
    found = {}
    for process in nodes.processes():
        try:
            spent = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = spent.user + spent.system
    return found


def efficiency(pairs: Sequence[tuple[Round, Round]]) -> tuple[str, float]:
    """A row for each pair of rounds, and the median efficiency by processor time."""
    rows, shares = [], []
    for alone, both in pairs:
        by_clock = alone.seconds / (WORKERS * both.seconds)
        at_work = sum(both.shard_s) / (WORKERS * both.seconds)
        useful = alone.processor_s / both.processor_s
        shares.append(at_work * useful)
        seconds = [alone.seconds, both.seconds, alone.processor_s, both.processor_s]
        spelled = [f"{value:.1f}" for value in seconds]
        rows.append([*spelled, *(f"{v:.1%}" for v in (at_work, useful, shares[-1], by_clock))])
    header = [
        *("one process s", "two nodes s", "one process processor s", "two nodes processor s"),
        *("workers have a shard", "of which useful", "efficiency by processor time", "by clock"),
    ]
    share = median(shares)
    kept = "kept" if share >= LEAST else "EXCEEDED"
    verdict = f"efficiency by processor time, median: {share:.1%}, at least {LEAST:.0%}: {kept}"
    return f"{markdown(header, rows)}\n\n{verdict}", share


def cost_of_the_kill(killed: Killed) -> str:
    """When a node was killed, what was done again, and the time beyond what one node needs."""
    needed = killed.killed_s + killed.num_left * mean(killed.round.shard_s)
    rows = [
        ["killed after", f"{killed.killed_s:.1f} s"],
        ["shards without a result then", str(killed.num_left)],
        ["workers that died with a shard", str(killed.num_lost)],
        ["until the last result", f"{killed.round.seconds:.1f} s"],
        ["of which the other node alone needs", f"{needed:.1f} s"],
        ["time lost", f"{killed.round.seconds - needed:.1f} s"],
    ]
    return markdown(["one of two nodes killed with SIGKILL", "measured"], rows)
