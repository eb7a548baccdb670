"""The correction of an experience for the policy that sampled it, which is older than the attacker.

The attacker as the training step begins reads the probes once more. The probes then bear its
log-probabilities, so that an algorithm's ratio, and what ``training.kl`` measures, are of this step
alone; what lies between it and the policy that sampled becomes the weight of each.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional import importance_ratios, is_near_policy, off_policy_weights
from astra_core.algorithms.movement import is_readable, probe_logprobs
from astra_core.config import StalenessConfiguration
from astra_core.models.rows import pad_lists
from astra_core.rollout import Graph, Node, Probe
from astra_core.system import System

_CAPS = {"token": 2.0, "sequence": 5.0, "sequence_mask": 1.01}


def correct(
    graphs: Sequence[Graph], system: System, config: StalenessConfiguration
) -> tuple[list[Graph], dict[str, float]]:
    """The graphs with each probe's present log-probabilities and weights, and figures on them.

    ``config``: the correction, other than ``none``.
    """
    nodes = [node for graph in graphs for node in graph.nodes() if is_readable(node)]
    if not nodes:
        return list(graphs), {}
    now = probe_logprobs(nodes, system)
    width = max(len(node.probe_ids) for node in nodes)
    mask = pad_lists([node.probe_mask for node in nodes], width).bool()
    before = pad_lists([node.probe_logprobs for node in nodes], width)
    log_ratios = torch.where(mask, pad_lists(now, width) - before, 0.0)
    cap = config.cap or _CAPS[config.correction]
    found: dict[int, Probe] = {}
    if config.correction == "sequence_mask":
        is_kept = is_near_policy(log_ratios, mask, cap=cap)
        for node, own, kept in zip(nodes, now, is_kept.tolist(), strict=True):
            held = tuple(trained and kept for trained in node.probe_mask)
            found[id(node)] = replace(node.probe, logprobs=own, mask=held)
        figures = {"importance_masked": 1.0 - float(is_kept.float().mean())}
    else:
        level: Literal["token", "sequence"] = (
            "token" if config.correction == "token" else "sequence"
        )
        weights = off_policy_weights(log_ratios, mask, level=level, cap=cap)
        for node, own, row in zip(nodes, now, weights.tolist(), strict=True):
            used = tuple(row[: len(node.probe_ids)])
            found[id(node)] = replace(node.probe, logprobs=own, weights=used)
        figures = _weight_figures(weights, mask, cap)
    ratios = importance_ratios(log_ratios)[mask]
    figures["importance_ratio"] = float(ratios.mean()) if ratios.numel() else 1.0

    def correct_turn(node: Node) -> Node:
        return replace(node, probe=found.get(id(node), node.probe))

    return [graph.map_turns(correct_turn) for graph in graphs], figures


def _weight_figures(
    weights: Float[Tensor, "B #T"], mask: Bool[Tensor, "B T"], cap: float
) -> dict[str, float]:
    """The share of capped weights, and the effective share of the sample (Kish)."""
    every = weights.expand_as(mask)[mask] if weights.shape[1] > 1 else weights[:, 0]
    every = every.double()
    if not every.numel():
        return {"importance_capped": 0.0, "importance_effective": 1.0}
    effective = every.sum().square() / (len(every) * every.square().sum())
    return {
        "importance_capped": float((every >= cap).double().mean()),
        "importance_effective": float(effective),
    }
