"""Advantages and returns per token of graphs, from a value head's prediction at each state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from astra_core.algorithms.credit import Forest, alive, can_teach, forest, turn_weights
from astra_core.models.chat_format import SeparatorFormat
from astra_core.models.rows import pad_lists
from astra_core.rollout import Graph, Node, Prompt
from astra_core.system import System
from astra_parts.algorithms.functional import tree_gae
from astra_parts.algorithms.value_head import ValueHead
from astra_parts.samplers.rewording import conversation_of


@dataclass(frozen=True, slots=True)
class TurnEstimate:
    """A probe with value, advantage and return of each of its tokens.

    Attributes:
        advantages: Without gradient; 0 at tokens that are not trained.
        weight: How often a rollout visits the turn; see ``functional.visit_weights``.
    """

    node: Node
    values: tuple[float, ...]
    advantages: tuple[float, ...]
    returns: tuple[float, ...]
    weight: float = 1.0


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

    ``account``: what a turn earns at its end and what each token of its probe costs, reward units.
    """
    grown = forest(graphs)
    nodes = grown.nodes
    budget, zeros = system.config.tokens_per_batch, [0.0] * len(grown.nodes)
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
        -pad_lists([costs for _, costs in accounts], width),
        pad_lists(values, width),
        pad_lists([node.probe_mask for node in nodes], width).bool(),
        grown.parents,
        final_values=torch.tensor(
            _final_values(grown, value_head, graphs=graphs, system=system) if is_cut else zeros
        ),
        discount=discount,
        turn_discount=turn_discount,
        decay=decay,
    )
    counts = turn_weights(grown, "visits")
    rows = zip(nodes, values, advantages.tolist(), returns.tolist(), counts, strict=True)
    return [
        TurnEstimate(node, own, tuple(gains[: len(own)]), tuple(goals[: len(own)]), count)
        for node, own, gains, goals, count in rows
        if can_teach(node)
    ]


def _final_values(
    grown: Forest, value_head: ValueHead, *, graphs: Sequence[Graph], system: System
) -> list[float]:
    """The value after each last turn, 0 elsewhere."""
    nodes = grown.nodes
    found = [0.0] * len(nodes)
    last = [index for index, node in enumerate(nodes) if not alive(node.children)]
    seeds, parents = grown.seeds.tolist(), grown.parents.tolist()
    contexts = [
        _next_context(_turns_to(nodes, parents, index), system, graphs[seeds[index]].prompt)
        for index in last
    ]
    predicted = value_head.values(
        contexts, [()] * len(last), tokens_per_batch=system.config.tokens_per_batch
    )
    for index, (value,) in zip(last, predicted, strict=True):
        found[index] = value
    return found


def _turns_to(nodes: Sequence[Node], parents: Sequence[int], index: int) -> list[Node]:
    """The turns of a conversation up to a place, oldest first."""
    turns = []
    while index >= 0:
        turns.append(nodes[index])
        index = parents[index]
    return turns[::-1]


def _next_context(turns: Sequence[Node], system: System, prompt: Prompt) -> tuple[int, ...]:
    """What the attacker would read before its next probe."""
    attacker, node = system.attacker, turns[-1]
    limit = system.context_limit(attacker, system.config.probe.max_new_tokens)
    player = system.player(len(turns))
    if not isinstance(player.format, SeparatorFormat):
        (context,) = player.contexts([conversation_of(prompt, turns, system)], limit)
        return context.token_ids
    sampled = attacker.readable_ids(node.response_ids[0]) if system.shares_tokenizer else ()
    reply = sampled or attacker.encode(attacker.as_text(node.response_texts[0]))
    ids = node.context_ids + attacker.closed_ids(node.probe_ids) + attacker.closed_ids(reply)
    opening = attacker.opening_ids if len(ids) > limit > 1 else ()
    return opening + ids[len(opening) - limit :]
