"""How far the attacker is from the policy that sampled, from its log-probabilities of probes."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional import kl_estimates
from astra_core.rollout import Node
from astra_core.system import System

K3, K1, PROBES = FIGURES = ("moved_nats", "moved_k1_nats", "moved_probes")
"""Figures of a pass, each divided by the batch's weight, so that their means add up to sums."""


def is_readable(node: Node) -> bool:
    """Whether a probe was trained, and how likely it was is known."""
    is_known = len(node.probe_logprobs) == len(node.probe_ids)
    return not node.has_failed and is_known and any(node.probe_mask)


def probe_logprobs(nodes: Sequence[Node], system: System) -> list[tuple[float, ...]]:
    """The log-probabilities of each probe under the attacker, or the agent that plays its turn."""
    found: list[tuple[float, ...]] = [()] * len(nodes)
    for turn in sorted({len(node.path) - 1 for node in nodes}):
        places = [at for at, node in enumerate(nodes) if len(node.path) - 1 == turn]
        logprobs = system.player(turn).model.continuation_logprobs(
            [nodes[at].context_ids for at in places],
            [nodes[at].probe_ids for at in places],
            tokens_per_batch=system.config.tokens_per_batch,
        )
        for at, own in zip(places, logprobs, strict=True):
            found[at] = own
    return found


def movement_figures(
    logprobs: Float[Tensor, "B T"],
    behaviour_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    weight: float,
) -> dict[str, float]:
    """The KL divergence sampling policy || attacker of a batch, for the figures of its ``step``.

    Both estimators are sums over the trained tokens of all probes. ``k3`` is never negative and
    varies less than ``k1``, which is the mean log-ratio itself.

    Args:
        logprobs: Of every probe token under the attacker, nats.
        weight: Of the batch; what its loss is divided by.

    Source: Schulman, http://joschu.net/blog/kl-approx.html.
    """
    if not weight:
        return {}
    now, before = logprobs.detach().double(), behaviour_logprobs.double()
    found = {PROBES: float(mask.any(-1).sum()) / weight}
    for name, estimator in ((K3, "k3"), (K1, "k1")):
        nats = kl_estimates(before, now, estimator=estimator)  # type: ignore[arg-type]
        found[name] = float(torch.where(mask, nats, 0.0).sum()) / weight
    return found


def moved_means(figures: dict[str, float]) -> dict[str, float]:
    """The figures of a window in which each movement is the mean over its probes.

    Those of several agents, named ``agent/moved_nats``, too.
    """
    found = dict(figures)
    for name, count in figures.items():
        if name.rpartition("/")[2] != PROBES:
            continue
        own = name.removesuffix(PROBES)
        del found[name]
        for figure in (K3, K1):
            found[own + figure] = figures.get(own + figure, 0.0) / (count or 1.0)
    return found
