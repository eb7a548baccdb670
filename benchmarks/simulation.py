"""Workers, their driver, failures and stragglers as a simulation, by SimPy.

One experience is simulated: the driver sends the weights to every worker, one after the other, then
hands out shards and takes results. Both occupy it, which limits the scaling: with ``n`` workers it
is always busy once ``n * hand_over_s`` exceeds ``shard_s``.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from astra_core.errors.packages import require_package
from astra_core.seeding import derive_key, generator


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants of a machine and a model.

    Attributes:
        shard_s: Mean seconds of a shard in its worker.
        spread: Share by which a shard is at most longer or shorter, uniformly distributed.
        hand_over_s: Seconds of the driver per shard.
        start_s: Seconds until a started worker can work.
        sync_s_per_mib: Seconds of the driver to send a worker a MiB of weights.
        mib: MiB of weights that have changed.
    """

    shard_s: float
    spread: float = 0.0
    hand_over_s: float = 0.0
    start_s: float = 0.0
    sync_s_per_mib: float = 0.0
    mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a simulation.

    Attributes:
        losses_per_hour: Deaths of one worker.
        straggler_share: Share of shards that take far longer.
        straggler_factor: Factor by which they take longer.
        again_after: A shard that takes so many times the mean is given to an idle worker too; 0
            gives none.
    """

    losses_per_hour: float = 0.0
    straggler_share: float = 0.0
    straggler_factor: float = 1.0
    again_after: float = 4.0


@dataclass(slots=True)
class Outcome:
    """The outcome of a simulation.

    Attributes:
        seconds: Until the last result.
        driver_share: Share of that time in which the driver was busy.
        num_lost: Workers that died with a shard.
        num_again: Shards that were given to a second worker.
    """

    seconds: float = 0.0
    driver_share: float = 0.0
    num_lost: int = 0
    num_again: int = 0


@dataclass(slots=True)
class _Run:
    """The state of a simulation; ``working`` has the begin of each shard that is worked on."""

    waiting: deque[int]
    total: int
    outcome: Outcome = field(default_factory=Outcome)
    done: set[int] = field(default_factory=set)
    working: dict[int, list[float]] = field(default_factory=dict)
    driver_s: float = 0.0


def simulated(
    costs: Costs, workers: int, *, num_shards: int, faults: Faults | None = None, seed: int = 0
) -> Outcome:
    """The outcome of an experience with ``workers`` that are already running.

    Raises:
        ConfigurationError: SimPy is not installed.
    """
    require_package("simpy", subject="the simulation", extra="scaling")
    import simpy

    world: Any = simpy.Environment()
    driver = simpy.Resource(world)
    run = _Run(deque(range(num_shards)), num_shards)
    finished = world.event()
    random = generator(derive_key(seed, "scaling", workers))
    for _ in range(workers):
        life = _life(world, driver, run, costs=costs, faults=faults or Faults(), random=random)
        world.process(_until_done(life, finished))
    world.run(until=finished)
    run.outcome.seconds = world.now
    run.outcome.driver_share = run.driver_s / world.now if world.now else 0.0
    return run.outcome


def _until_done(life: Iterator[Any], finished: Any) -> Iterator[Any]:
    """A worker, which ends the simulation with the last result."""
    yield from life
    if not finished.triggered:
        finished.succeed()


def _life(
    world: Any, driver: Any, run: _Run, *, costs: Costs, faults: Faults, random: np.random.Generator
) -> Iterator[Any]:
    """One worker: weights, then shards until there is none."""
    yield from _driven(world, driver, run, costs.mib * costs.sync_s_per_mib)
    while len(run.done) < run.total:
        number = _next(world.now, run, costs, faults)
        if number is None:
            yield world.timeout(max(costs.shard_s / 20, 1e-3))
            continue
        begun = world.now
        run.working.setdefault(number, []).append(begun)
        yield from _driven(world, driver, run, costs.hand_over_s)
        takes_s = costs.shard_s * (1 + costs.spread * (2 * random.random() - 1))
        if random.random() < faults.straggler_share:
            takes_s *= faults.straggler_factor
        dies_s = (
            random.exponential(3600 / faults.losses_per_hour) if faults.losses_per_hour else None
        )
        if dies_s is not None and dies_s < takes_s:
            yield world.timeout(dies_s)
            _lost(run, number, begun)
            yield world.timeout(costs.start_s)
            yield from _driven(world, driver, run, costs.mib * costs.sync_s_per_mib)
            continue
        yield world.timeout(takes_s)
        run.done.add(number)
        run.working.pop(number, None)


def _driven(world: Any, driver: Any, run: _Run, seconds: float) -> Iterator[Any]:
    """Occupies the driver."""
    with driver.request() as turn:
        yield turn
        yield world.timeout(seconds)
    run.driver_s += seconds


def _lost(run: _Run, number: int, begun: float) -> None:
    run.outcome.num_lost += 1
    others = run.working.get(number, [])
    if begun in others:
        others.remove(begun)
    if not others and number not in run.done:
        run.waiting.appendleft(number)


def _next(now: float, run: _Run, costs: Costs, faults: Faults) -> int | None:
    """The shard that an idle worker gets: one that waits, else one that takes too long."""
    if run.waiting:
        return run.waiting.popleft()
    if not faults.again_after:
        return None
    limit = now - faults.again_after * costs.shard_s
    slow = [
        number for number, begins in run.working.items() if len(begins) == 1 and begins[0] < limit
    ]
    if slow:
        run.outcome.num_again += 1
        return slow[0]
    return None
