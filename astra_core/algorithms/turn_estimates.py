"""From graphs to advantages and returns per token, by what a value head expects of each state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from astra_core.algorithms.credit import alive, can_teach, forest
from astra_core.algorithms.functional import tree_gae
from astra_core.algorithms.policy import padded
from astra_core.algorithms.value_head import ValueHead
from astra_core.rollout import Graph, Node
from astra_core.system import System


@dataclass(frozen=True, slots=True)
class TurnEstimate:
    """A probe, and for each of its tokens how much better than expected it did.

    Attributes:
        node: The turn.
        values: Predicted before each token when the probe was sampled, reward units.
        advantages: Without gradient; 0 at tokens that are not trained.
        returns: What the value head should have predicted.
    """

    node: Node
    values: tuple[float, ...]
    advantages: tuple[float, ...]
    returns: tuple[float, ...]


def turn_estimates(
    graphs: Sequence[Graph],
    system: System,
    value_head: ValueHead,
    *,
    account: Callable[[Node], tuple[float, Sequence[float]]],
    is_cut: bool,
    discount: float,
    turn_discount: float,
    decay: float,
) -> list[TurnEstimate]:
    """Every turn that can be learned from, graph by graph and breadth first.

    Args:
        graphs: Rewarded.
        system: Whose attacker sampled them.
        value_head: Read with the weights as they are, hence before the first update.
        account: What a turn earns at its end and what each token of its probe costs, reward units.
        is_cut: Whether the value after the last turn counts as its future.
        discount: See ``functional.tree_gae``.
        turn_discount: See there.
        decay: See there.
    """
    grown = forest(graphs)
    nodes = grown.nodes
    budget = system.config.tokens_per_batch
    predicted = value_head.values(
        [node.context_ids for node in nodes],
        [node.probe_ids for node in nodes],
        tokens_per_batch=budget,
    )
    values = [own[:-1] for own in predicted]
    accounts = [account(node) for node in nodes]
    width = max((len(own) for own in values), default=0)
    advantages, returns = tree_gae(
        torch.tensor([earned for earned, _ in accounts]),
        -padded([costs for _, costs in accounts], width),
        padded(values, width),
        padded([node.probe_mask for node in nodes], width).bool(),
        grown.parents,
        final_values=torch.tensor(_final_values(nodes, system, value_head, is_cut=is_cut)),
        discount=discount,
        turn_discount=turn_discount,
        decay=decay,
    )
    rows = zip(nodes, values, advantages.tolist(), returns.tolist(), strict=True)
    return [
        TurnEstimate(node, own, tuple(gains[: len(own)]), tuple(goals[: len(own)]))
        for node, own, gains, goals in rows
        if can_teach(node)
    ]


def _final_values(
    nodes: Sequence[Node], system: System, value_head: ValueHead, *, is_cut: bool
) -> list[float]:
    """The value after each last turn, 0 elsewhere and for conversations that ended."""
    found = [0.0] * len(nodes)
    last = [index for index, node in enumerate(nodes) if is_cut and not alive(node.children)]
    predicted = value_head.values(
        [_next_context(nodes[index], system) for index in last],
        [()] * len(last),
        tokens_per_batch=system.config.tokens_per_batch,
    )
    for index, (value,) in zip(last, predicted, strict=True):
        found[index] = value
    return found


def _next_context(node: Node, system: System) -> tuple[int, ...]:
    """What the attacker would read before its next probe."""
    attacker = system.attacker
    reply = (
        node.response_ids[0] if system.shares_tokenizer else attacker.encode(node.response_texts[0])
    )
    ids = node.context_ids + attacker.closed(node.probe_ids) + attacker.closed(reply)
    return ids[-system.context_limit(attacker, system.config.probe.max_new_tokens) :]
