"""Probes with their advantages, and the tensors of several of them as rows of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.credit import CreditedTurn
from astra_core.models.rows import TokenRows, pad_lists, pad_rows
from astra_core.rollout import Node
from astra_core.system import System
from astra_parts.algorithms.functional import Aggregation, aggregation_weight


class AdvantageStep(Protocol):
    """A probe with one advantage for the whole of it, or one per token."""

    @property
    def node(self) -> Node:
        """The turn that holds the probe."""

    @property
    def advantages(self) -> tuple[float, ...]:
        """One number, or one per token."""


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A probe with the weight of the log-probability of each of its tokens."""

    node: Node
    advantage: float

    @property
    def advantages(self) -> tuple[float, ...]:
        """The one for all tokens."""
        return (self.advantage,)


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Probes as rows of one forward pass.

    Attributes:
        behaviour_logprobs: Of every probe token under the policy that sampled, nats.
        reference_logprobs: The same under the reference; 0 where the sampler computed none.
    """

    rows: TokenRows
    behaviour_logprobs: Float[Tensor, "B T"]
    reference_logprobs: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B #T"]
    weight: float
    num_tokens: int


def policy_steps(
    turns: Sequence[CreditedTurn], advantages: Float[Tensor, " N"]
) -> list[PolicyStep]:
    """Each turn's probe with its advantage, times what the turn counts."""
    return [
        PolicyStep(turn.node, turn.weight * advantage)
        for turn, advantage in zip(turns, advantages.tolist(), strict=True)
    ]


def policy_batch(
    steps: Sequence[AdvantageStep], system: System, *, aggregation: Aggregation
) -> PolicyBatch:
    """The tensors of these probes; advantages are ``[B, 1]``, or ``[B, T]`` if one has several."""
    nodes = [step.node for step in steps]
    advantages = [step.advantages for step in steps]
    device, longest = system.attacker.device, system.config.probe.max_new_tokens
    rows = pad_rows(
        [node.context_ids for node in nodes],
        [node.probe_ids for node in nodes],
        pad_id=0,
        device=device,
    )
    width = rows.continuation_ids.shape[1]
    mask = pad_lists([node.probe_mask for node in nodes], width).bool()
    gains = pad_lists(advantages, 1 if all(len(own) == 1 for own in advantages) else width)
    gains = gains * _weights(nodes, width)
    return PolicyBatch(
        rows,
        pad_lists([node.probe_logprobs for node in nodes], width).to(device),
        pad_lists([node.reference_logprobs for node in nodes], width).to(device),
        mask.to(device),
        gains.to(device),
        float(aggregation_weight(mask, mode=aggregation, max_length=longest)),
        sum(len(node.context_ids) + len(node.probe_ids) for node in nodes),
    )


def _weights(nodes: Sequence[Node], width: int) -> Float[Tensor, "B #T"]:
    """The weight of each probe, or of each of its tokens."""
    if all(len(node.probe_weights) == 1 for node in nodes):
        return pad_lists([node.probe_weights for node in nodes], 1)
    every = [
        own if len(own) > 1 else own * len(node.probe_ids)
        for node, own in ((node, node.probe_weights) for node in nodes)
    ]
    return pad_lists(every, width)
