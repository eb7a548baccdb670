"""The KL control: measures and limits how far an experience moves the attacker.

A pass over a window shows how far its probes are from the policy that sampled them: beyond
``training.kl.max_per_experience_nats`` its update is left out, and so is the rest of the experience
(the trust region of PPO's early stopping). After an experience is learned, up to 64 of its probes
are read again, which includes the last update: that is the movement in warnings.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from astra_core.algorithms.functional import kl_estimates
from astra_core.algorithms.movement import K3, is_readable, probe_logprobs
from astra_core.config import KLConfiguration
from astra_core.rollout import Graph, Node
from astra_core.system import System
from astra_core.training.progress import Move

if TYPE_CHECKING:
    from astra_core.training.distribution.distributed import World
    from astra_core.training.harness import Experience

MEASURED_PROBES = 64
"""Probes that are read again after an experience, about one percent of the cost of learning."""


def is_beyond(config: KLConfiguration, figures: Mapping[str, float]) -> bool:
    """Whether a window's own pass found the attacker outside the trust region."""
    limit = config.max_per_experience_nats
    return limit is not None and figures.get(K3, 0.0) > limit


def measure_move(system: System, experience: "Experience", *, is_cut: bool, world: "World") -> Move:
    """The movement of an experience that was just learned.

    Several processes all use the measurement of the first one.
    """
    told = world.first_says(json.dumps(moved_nats(system, experience.graphs)))
    nats, k1_nats = json.loads(told)
    return Move(experience.iteration + 1, nats, k1_nats, is_cut)


def moved_nats(system: System, graphs: Sequence[Graph]) -> tuple[float, float]:
    """How far the attacker is from the policy that sampled these rollouts, nats per probe.

    The attacker reads up to ``MEASURED_PROBES`` probes, spread over all. Given are the means over
    them by the estimators k3 and k1; zeros where no probe was trained.
    """
    nodes = [node for graph in graphs for node in graph.nodes() if is_readable(node)]
    if not nodes:
        return 0.0, 0.0
    # Summed turn by turn: another order would round differently.
    chosen = sorted(
        (nodes[at] for at in spread(len(nodes), MEASURED_PROBES)), key=lambda node: len(node.path)
    )
    totals = [0.0, 0.0]
    for node, logprobs in zip(chosen, probe_logprobs(chosen, system), strict=True):
        for place, nats in enumerate(_distances(node, logprobs)):
            totals[place] += nats
    return totals[0] / len(chosen), totals[1] / len(chosen)


def spread(count: int, most: int) -> list[int]:
    """At most so many of ``count`` indices, evenly spread.

    >>> spread(3, 5), spread(6, 3)
    ([0, 1, 2], [0, 2, 4])
    """
    return [at * count // most for at in range(most)] if count > most else list(range(count))


def _distances(node: Node, logprobs: Sequence[float]) -> tuple[float, float]:
    """The probe's divergence by k3 and k1, summed over its trained tokens."""
    before = torch.tensor(node.probe_logprobs, dtype=torch.float64)
    now, mask = torch.tensor(logprobs, dtype=torch.float64), torch.tensor(node.probe_mask)
    k3 = kl_estimates(before, now, estimator="k3")[mask].sum()
    return float(k3), float(kl_estimates(before, now, estimator="k1")[mask].sum())
