"""Seconds per tree of one DPO update: ours, ASTRA-RL's way and TRL's, and whether they agree.

``python -m benchmarks update`` prints them. Ours learns from the best and worst siblings of several
trees at once, in the micro-batches that a Trainer makes of them with a batch_size of 28, a multiple
of the seven pairs of a tree; once more with the 32 of params.yaml, which divide a tree; and with
single pairs in a random order, which share less. The others learn from one tree, the seven pairs of
which are one batch. All compute the same loss and gradient of one tree, which is checked in the
same run. The learning rate is too small to move a weight, so every repetition does the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from astra_core.algorithms.pairs import PreferencePair
from astra_core.config import AlgorithmChoice, Shuffle, TrainingConfiguration
from astra_core.registry import build
from astra_core.rollout import Graph
from astra_core.system import System
from astra_core.training.distribution.distributed import World
from astra_core.training.harness import Experience, Harness
from astra_core.training.update import Update, Updates
from benchmarks.figures import Figure, Report, cost_table
from benchmarks.limits import Machine, update_work
from benchmarks.reference.other_trainers import NO_STEP, TRAINERS, Precision, gradient_norm
from benchmarks.shapes import Shape, rewarded_graphs, sampler, system
from benchmarks.timing import Cost, Effort, Way, costs, threads

BETA = 0.1
BATCH_SIZE = 28
OTHER_BATCH_SIZE = 32
_KEPT = ", freed memory kept"
TOLERANCE_PERCENT: dict[Precision, float] = {"fp32": 0.01, "bf16": 3.0}
"""Of loss and gradient norm; bf16 keeps eight bits, and the three round at different places."""


@dataclass(frozen=True, slots=True)
class Learner:
    """Our algorithm and optimiser, and the trees to learn from."""

    harnesses: Mapping[Shuffle, Harness]
    updates: Updates
    graphs: Sequence[Graph]

    def step(
        self, count: int, *, shuffle: Shuffle = "trees", batch_size: int = BATCH_SIZE
    ) -> Update:
        """One update by the pairs of the first trees, cut into micro-batches as a Trainer does."""
        harness = self.harnesses[shuffle]
        experience = Experience(0, tuple(self.graphs[:count]), tuple(self.pairs(count)), {}, 0.0)
        window = list(harness.batches(experience, epoch=0, batch_size=batch_size))
        return self.updates.apply(window, training_step=0)

    def pairs(self, count: int) -> list[PreferencePair]:
        """The pairs of the first trees."""
        found: list[PreferencePair] = self.harnesses["trees"].algorithm.flatten_all(
            self.graphs[:count]
        )
        return found


def report(shape: Shape, effort: Effort) -> Report:
    """Seconds per tree of each way in fp32 and bf16, and the gaps of losses and gradients."""
    own = system(shape)
    with threads(effort.threads):
        graphs = rewarded_graphs(shape, own, effort.trees)
        machine = Machine.measured()
        limit, split_limit = (
            _limit_s(shape, own, graphs, each) for each in (machine, machine.with_split_products())
        )
    fp32, figures = _compared(shape, effort, own, graphs, "fp32")
    bf16, more = _compared(shape, effort, own, graphs, "bf16")
    names = ("ours", *TRAINERS)
    ours, plain, trl = _walls(fp32, names)
    ours_bf16, plain_bf16, trl_bf16 = _walls(bf16, names)
    tables = [
        cost_table(
            f"DPO update of {shape.name}, {precision}, seconds per tree",
            found,
            threads=effort.threads,
        )
        for precision, found in (("fp32", fp32), ("bf16", bf16))
    ]
    figures += [
        *more,
        Figure("update fp32: share of the limit of fp32 products", 100.0 * limit / ours, "%"),
        *_split_figures(machine, 100.0 * split_limit / ours),
        Figure("update bf16: ratio to plain way under autocast", plain_bf16 / ours_bf16, "x"),
        Figure("update bf16: ratio to TRL in bf16", trl_bf16 / ours_bf16, "x"),
    ]
    # ASTRA-RL knows fp32 only, so its fp32 is what a user of our bf16 comes from.
    ratios = {"update": plain / ours, "update vs TRL": trl / ours, "update bf16": plain / ours_bf16}
    return Report(tables, figures, ratios)


def _split_figures(machine: Machine, percent: float) -> list[Figure]:
    """The share of the limit of split products; nothing where the processor takes none."""
    if not machine.split_flops_per_s:
        return []
    return [Figure("update fp32: share of the limit of split ones", percent, "%")]


def _limit_s(shape: Shape, own: System, graphs: Sequence[Graph], machine: Machine) -> float:
    """The least seconds per tree that this machine could do a training pass in, in fp32."""
    nodes = [node for graph in graphs for node in graph.nodes()]
    work = update_work(
        own.attacker.model,
        shape,
        [node.context_ids + node.probe_ids for node in nodes],
        sum(len(node.probe_ids) for node in nodes),
    )
    return machine.seconds(work) / len(graphs)


def _compared(
    shape: Shape, effort: Effort, own: System, graphs: Sequence[Graph], precision: Precision
) -> tuple[list[Cost], list[Figure]]:
    """Costs of ours and of the others, these also with their freed memory kept, and the gaps."""
    ours = learner(shape, own, graphs, precision=precision)
    others = {name: kind(shape, beta=BETA, precision=precision) for name, kind in TRAINERS.items()}
    few = effort.plain_repetitions
    ways = [
        Way("ours", lambda: ours.step(effort.trees), effort.repetitions, effort.trees),
        Way(
            f"ours, {OTHER_BATCH_SIZE} pairs a pass",
            partial(ours.step, effort.trees, batch_size=OTHER_BATCH_SIZE),
            few,
            effort.trees,
        ),
        Way(
            "ours, pairs shuffled",
            partial(ours.step, effort.trees, shuffle="steps"),
            few,
            effort.trees,
        ),
    ]
    for told in (_KEPT, ""):
        ways += [
            Way(f"{name}{told}", partial(other.step, ours.pairs(1)), few, is_ours=bool(told))
            for name, other in others.items()
        ]
    found = costs(ways, effort)
    with threads(effort.threads):
        update = ours.step(1)
    return found, [
        figure
        for name, other in others.items()
        for figure in _gaps(f"update {precision}: gap to {name}", update, other, precision)
    ]


def _gaps(subject: str, update: Update, other: Any, precision: Precision) -> list[Figure]:
    """How far our update lies from the other's last one of the same tree."""
    limit = TOLERANCE_PERCENT[precision]
    loss = 100.0 * _gap(update.loss, other.loss)
    norm = 100.0 * _gap(update.grad_norm, gradient_norm(other.model))
    return [
        Figure(f"{subject}, loss", loss, "%", limit),
        Figure(f"{subject}, gradient norm", norm, "%", limit),
    ]


def learner(
    shape: Shape, own: System, graphs: Sequence[Graph], *, precision: Precision = "fp32"
) -> Learner:
    """The Trainer's parts for an update with pairs of best and worst siblings."""
    algorithm = AlgorithmChoice(name="dpo", options={"margin": 0.0, "beta": BETA})
    config = TrainingConfiguration(algorithm=algorithm, lr=NO_STEP, precision=precision)
    built = build("algorithm", algorithm, system=own)
    updates = Updates(config, built, own.attacker, world=World())
    kinds: tuple[Shuffle, ...] = ("trees", "steps")
    harnesses = {
        kind: Harness(sampler(shape, own), built, num_episodes=len(graphs), shuffle=kind)
        for kind in kinds
    }
    return Learner(harnesses, updates, graphs)


def _walls(found: Sequence[Cost], names: Sequence[str]) -> list[float]:
    walls = {cost.name: cost.wall_s for cost in found}
    return [walls[name] for name in names]


def _gap(value: float, other: float) -> float:
    return abs(value - other) / abs(other)
