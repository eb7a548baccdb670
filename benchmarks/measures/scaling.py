"""The speed-up of more workers: measured with one and two, simulated for up to a thousand.

``python -m benchmarks scaling`` measures what a token costs to sample, score and learn from, a
worker to start, a shard to do, a result to hand over and weights to send, simulates workers with
these constants, and compares the simulation with real runs of one and two worker processes, which
take turns. The exit status is 1 if the model is off by more than a tenth, given what a shard took
in each run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from astra_core.executor import Weights, Work
from astra_parts.arguments import LineParser, at_least_one
from astra_parts.executors.processes import ProcessesExecutor
from benchmarks.processor import machine
from benchmarks.shapes import SHAPES, SMALL
from benchmarks.simulation import Costs, Faults, simulated
from benchmarks.token_costs import token_costs
from tasks.machine.tables import markdown

WORKERS = (1, 2, 8, 32, 128, 512, 1000)
MOST_OFF = 0.1
_PROMPTS = 10**8
_FAULTY = 300
"""Simulations of one worker with faults; of more workers fewer."""
_FAULTS = Faults(losses_per_hour=0.05, straggler_share=0.01, straggler_factor=10.0)


@dataclass(frozen=True)
class ShapeWork(Work):
    """Work that rolls out trees of a shape; a shard is the first prompt's number and a count."""

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
        """Receives weights without loading them, which takes little time beside the sending."""

    def do(self, prepared: Any, shard: tuple[int, int]) -> tuple[float, list[Any]]:
        """Seconds of the shard, and its graphs."""
        from benchmarks.shapes import prompts

        first, count = shard
        start = time.perf_counter()
        seeds = prompts(SHAPES[self.shape], first + count)[first:]
        graphs = prepared.roll_out(seeds, iteration=0)
        return time.perf_counter() - start, graphs


@dataclass(frozen=True, slots=True)
class Round:
    """All shards, done once.

    Attributes:
        seconds: Seconds until the last result.
        shard_s: Seconds of each shard in its worker.
    """

    seconds: float
    shard_s: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the constants, the comparison and the curve are printed."""
    parser = LineParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=SMALL.name)
    parser.add_argument("--shards", type=at_least_one, default=24, help="of one experience")
    parser.add_argument("--prompts", type=at_least_one, default=8, help="of a shard")
    parser.add_argument("--rounds", type=at_least_one, default=5, help="with each number in turn")
    asked = parser.parse_args(arguments)
    shards = [(number * asked.prompts, asked.prompts) for number in range(asked.shards)]
    print(f"{machine()}\n\n{token_costs(SHAPES[asked.shape], num_trees=asked.prompts).table()}\n")
    mib = SHAPES[asked.shape].weights_mib
    work = ShapeWork(asked.shape)
    costs, rounds = measured(work, shards, num_rounds=asked.rounds, mib=mib)
    print(costs_table(costs), end="\n\n")
    text, most_off = compared(costs, rounds)
    print(text, end="\n\n")
    # The rounds that it is compared with send none.
    costs = replace(costs, mib=mib)
    print(f"each worker gets {costs.mib:.1f} MiB of weights, then 16 shards\n")
    print(curve(costs, prompts_per_shard=asked.prompts))
    return int(most_off > MOST_OFF)


def compared(costs: Costs, rounds: Mapping[int, Sequence[Round]]) -> tuple[str, float]:
    """A table of measured and simulated seconds, and the model's largest error.

    The time of a shard depends on the machine: on a busy one it changes from minute to minute, and
    two workers share memory and caches. So the model is compared with each round by that round's
    own seconds of a shard. A second column uses those of one worker, as a forecast does.
    """
    rows, offs = [], []
    for workers, own in rounds.items():
        num_shards = len(own[0].shard_s)
        forecast = simulated(costs, workers, num_shards=num_shards).seconds
        shard_s = median(mean(each.shard_s) for each in own)
        seconds = median(each.seconds for each in own)
        off = median(_simulated_as(costs, workers, each) / each.seconds - 1 for each in own)
        offs.append(abs(off))
        row = [str(workers), f"{seconds:.2f}", f"{off:+.1%}", f"{forecast / seconds - 1:+.1%}"]
        rows.append([*row, f"{shard_s / costs.shard_s:.2f}"])
    header = ["workers", "measured s", "model off by", "forecast off by", "shard, of one worker's"]
    return markdown(header, rows), max(offs)


def _simulated_as(costs: Costs, workers: int, own: Round) -> float:
    """The simulated seconds of a round, from the times of its shards."""
    as_measured = replace(costs, shard_s=mean(own.shard_s))
    return simulated(as_measured, workers, num_shards=len(own.shard_s)).seconds


def measured(
    work: Work, shards: Sequence[tuple[int, int]], *, num_rounds: int, mib: float
) -> tuple[Costs, dict[int, list[Round]]]:
    """The constants, by one worker, and rounds of all shards with one and with two in turn.

    Args:
        work: Of the workers.
        shards: Of each round.
        num_rounds: With each number of workers; weights are sent as often.
        mib: MiB of weights.
    """
    start_s = 0.0
    executors = {
        workers: ProcessesExecutor(ProcessesExecutor.Options(num_workers=workers))
        for workers in (1, 2)
    }
    rounds: dict[int, list[Round]] = {workers: [] for workers in executors}
    for workers, executor in executors.items():
        began = time.perf_counter()
        first = executor.run(work, shards[:workers])
        if workers == 1:
            start_s = max(time.perf_counter() - began - first[0][0], 0.0)
        executor.run(work, shards[:workers])  # the first call is slower, as its memory is new
    for _ in range(num_rounds):
        for workers, executor in executors.items():
            began = time.perf_counter()
            found = executor.run(work, shards)
            took_s = time.perf_counter() - began
            rounds[workers].append(Round(took_s, tuple(own for own, _ in found)))
    sent = [_sent(executors[1], work, shards[0], mib=mib, version=n) for n in range(num_rounds)]
    for executor in executors.values():
        executor.close()
    # The median of each shard over the rounds, so that a delay by a neighbour does not count.
    shard_s = [median(own) for own in zip(*(each.shard_s for each in rounds[1]), strict=True)]
    hand_over_s = median((own.seconds - sum(own.shard_s)) / len(shards) for own in rounds[1])
    costs = Costs(
        shard_s=mean(shard_s),
        spread=(max(shard_s) - min(shard_s)) / (2 * mean(shard_s)),
        hand_over_s=max(hand_over_s, 0.0),
        start_s=start_s,
        sync_s_per_mib=max(median(sent) - hand_over_s, 0.0) / mib,
    )
    return costs, rounds


def _sent(
    executor: ProcessesExecutor, work: Work, shard: tuple[int, int], *, mib: float, version: int
) -> float:
    """Seconds to send weights with a shard, without those of the shard itself."""
    weights = Weights(f"number {version}", bytes(round(mib * (1 << 20))))
    began = time.perf_counter()
    ((shard_s, _),) = executor.run(work, [shard], weights=weights)
    return time.perf_counter() - began - float(shard_s)


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


def curve(costs: Costs, *, prompts_per_shard: int) -> str:
    """Efficiency by the number of workers, with and without faults, and hours of 10^8 prompts.

    Each worker gets the weights once and has 16 shards on average. With faults chance decides, so
    those columns are means; of many workers one simulation is a mean already.
    """
    rows = []
    for workers in WORKERS:
        num_shards = 16 * workers
        ideal = 16 * costs.shard_s
        plain = simulated(costs, workers, num_shards=num_shards)
        faulty = mean(
            simulated(costs, workers, num_shards=num_shards, faults=_FAULTS, seed=seed).seconds
            for seed in range(max(_FAULTY // workers, 3))
        )
        rows.append(
            [
                str(workers),
                f"{ideal / plain.seconds:.0%}",
                f"{plain.driver_share:.0%}",
                f"{ideal / faulty:.0%}",
                f"{_PROMPTS * faulty / num_shards / prompts_per_shard / 3600:,.0f}",
            ]
        )
    header = ["workers", "efficiency", "driver busy"]
    return markdown([*header, "efficiency with faults", "hours of 10^8 prompts, with faults"], rows)
