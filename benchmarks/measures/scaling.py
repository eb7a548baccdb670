"""How much faster more workers are: measured with one and two, simulated for up to a thousand.

``python -m benchmarks scaling`` measures what a worker costs to start, a shard to do, a result to
hand over and weights to send, simulates workers with these constants, and compares the simulation
with real runs of one and two worker processes. The exit status is 1 if they differ by more than a
tenth, which a busy machine causes too: each worker needs a core of its own.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from astra_core.errors.arguments import LineParser, at_least_one
from astra_core.executor import Weights, Work
from astra_core.executors.processes import ProcessesExecutor
from benchmarks.shapes import SHAPES, SMALL
from benchmarks.simulation import Costs, Faults, simulated
from tasks.reporting.tables import markdown

WORKERS = (1, 2, 8, 32, 128, 512, 1000)
MOST_OFF = 0.1
_PROMPTS = 10**8
_FAULTS = Faults(losses_per_hour=0.05, straggler_share=0.01, straggler_factor=10.0)


@dataclass(frozen=True)
class ShapeWork(Work):
    """Rolls out trees of a shape; a shard is the number of its first prompt and how many."""

    shape: str
    key: str = "shape"

    def prepare(self, kept: dict[str, Any]) -> Any:
        """A sampler on models of that shape, on one thread."""
        import torch

        from benchmarks.shapes import sampler, system

        del kept
        torch.set_num_threads(1)
        return sampler(SHAPES[self.shape], system(SHAPES[self.shape]))

    def renew(self, prepared: Any, data: bytes) -> None:
        """Receives weights, and loads none: that costs little beside the sending."""

    def do(self, prepared: Any, shard: tuple[int, int]) -> tuple[float, list[Any]]:
        """Seconds of the shard, and its graphs."""
        from benchmarks.shapes import prompts

        first, count = shard
        start = time.perf_counter()
        seeds = prompts(SHAPES[self.shape], first + count)[first:]
        graphs = prepared.roll_out(seeds, iteration=0)
        return time.perf_counter() - start, graphs


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the constants, the comparison and the curve; the exit status."""
    parser = LineParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=SMALL.name)
    parser.add_argument("--shards", type=at_least_one, default=24, help="of one experience")
    parser.add_argument("--prompts", type=at_least_one, default=8, help="of a shard")
    asked = parser.parse_args(arguments)
    shards = [(number * asked.prompts, asked.prompts) for number in range(asked.shards)]
    costs, real = measured(ShapeWork(asked.shape), shards)
    print(costs_table(costs), end="\n\n")
    rows, is_close = [], True
    for workers, seconds in real.items():
        guess = simulated(costs, workers, num_shards=asked.shards).seconds
        is_close &= abs(guess / seconds - 1) <= MOST_OFF
        rows.append([str(workers), f"{seconds:.2f}", f"{guess:.2f}", f"{guess / seconds - 1:+.1%}"])
    print(markdown(["workers", "measured s", "simulated s", "off by"], rows), end="\n\n")
    print(curve(costs, prompts_per_shard=asked.prompts))
    return int(not is_close)


def measured(work: Work, shards: Sequence[tuple[int, int]]) -> tuple[Costs, dict[int, float]]:
    """The constants, and the seconds of all shards with one and with two workers.

    The constants of a shard are of one worker, so that the run of two checks them.
    """
    seconds, shard_s, start_s, sync_s, hand_over_s = {}, [], 0.0, 0.0, 0.0
    for workers in (1, 2):
        executor = ProcessesExecutor(ProcessesExecutor.Options(num_workers=workers))
        began = time.perf_counter()
        executor.run(work, shards[:workers])
        if workers == 1:
            start_s = time.perf_counter() - began
        executor.run(work, shards[:workers])  # the first call is slower: memory is new
        began = time.perf_counter()
        found = executor.run(work, shards)
        seconds[workers] = time.perf_counter() - began
        if workers == 1:
            shard_s = [own for own, _ in found]
            hand_over_s = max(seconds[1] - sum(shard_s), 0.0) / len(shards)
            start_s = max(start_s - shard_s[0], 0.0)
            began = time.perf_counter()
            executor.run(work, shards[:1], weights=Weights("new", bytes(1 << 24)))
            sync_s = max(time.perf_counter() - began - shard_s[0], 0.0) / 16
        executor.close()
    costs = Costs(
        shard_s=mean(shard_s),
        spread=(max(shard_s) - min(shard_s)) / (2 * mean(shard_s)),
        hand_over_s=hand_over_s,
        start_s=start_s,
        sync_s_per_mib=sync_s,
    )
    return costs, seconds


def costs_table(costs: Costs) -> str:
    """The constants, one a row."""
    rows = [
        ["a shard, in its worker", f"{costs.shard_s:.4f} s"],
        ["its spread, half of largest minus smallest", f"{costs.spread:.0%}"],
        ["handing a shard and its result over", f"{costs.hand_over_s * 1e3:.2f} ms"],
        ["starting a worker", f"{costs.start_s:.1f} s"],
        ["weights to a worker", f"{costs.sync_s_per_mib * 1e3:.2f} ms per MiB"],
    ]
    return markdown(["constant", "measured"], rows)


def curve(costs: Costs, *, prompts_per_shard: int, mib: float = 500.0) -> str:
    """Efficiency by the number of workers, with and without faults, and hours of 10^8 prompts."""
    rows = []
    for workers in WORKERS:
        num_shards = 16 * workers
        plain = simulated(replace(costs, mib=mib), workers, num_shards=num_shards)
        faulty = simulated(replace(costs, mib=mib), workers, num_shards=num_shards, faults=_FAULTS)
        per_prompt = faulty.seconds / num_shards / prompts_per_shard
        ideal = 16 * costs.shard_s
        rows.append(
            [
                str(workers),
                f"{ideal / plain.seconds:.0%}",
                f"{ideal / faulty.seconds:.0%}",
                f"{plain.driver_share:.0%}",
                f"{_PROMPTS * per_prompt / 3600:,.0f}",
            ]
        )
    header = ["workers", "efficiency", "with faults", "driver busy", "hours of 10^8 prompts"]
    return markdown(header, rows)
