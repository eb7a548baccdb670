"""PPO: a value head predicts the return, and a clipped ratio bounds each update.

Schulman et al., arXiv:1707.06347. Advantages are estimated token by token (GAE, arXiv:1506.02438):
time runs through the tokens of a probe, whose last one gets the reward of the turn, and continues
in the next probe of the conversation. A conversation that the turn limit cuts has not ended: the
value after the last reply predicts what would have followed; see ``final_turn``. PPO needs no
siblings, so it works on a single path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import TURN_WEIGHTS, TurnWeights
from astra_core.algorithms.functional import masked_whiten
from astra_core.config import NonNegative, Positive, Probability, Section
from astra_core.models.rows import pad_lists
from astra_core.rollout import Graph
from astra_core.system import System
from astra_parts.algorithms.functional import Aggregation, aggregate, value_losses
from astra_parts.algorithms.kl_penalty import KLOptions, KLPenalty, needs_for_kl
from astra_parts.algorithms.policy import PolicyGradient, mean_of
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.algorithms.surrogates import SurrogateOptions, surrogate_of
from astra_parts.algorithms.turn_estimates import TurnEstimate, turn_estimates
from astra_parts.algorithms.value_head import TokenOutputs, ValueHead, token_outputs


@dataclass(frozen=True, slots=True)
class PPOBatch:
    """Probes as rows, with the value head's predictions at sampling time and their targets."""

    policy: PolicyBatch
    old_values: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]

    @property
    def weight(self) -> float:
        """Tokens or probes, as the aggregation counts them."""
        return self.policy.weight

    @property
    def num_tokens(self) -> int:
        """Tokens the attacker reads in this pass."""
        return self.policy.num_tokens


class PPO(Algorithm):
    """Clipped surrogate with a value head of its own on the attacker."""

    needs: ClassVar[frozenset[Need]] = frozenset({"value_head"})
    # With the published lambda of 0.95 per token, little of what a second turn earns reaches the
    # first words of the first one before the value head has learned to predict it. Clipped tokens
    # would stop after a fraction of a nat; the KL to the reference holds the attacker anyway.
    options_for_turns: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "decay": 1.0,
            "turn_weights": "visits",
            "final_turn": "terminated",
            "surrogate": "cispo",
            "kl_coefficient": 0.02,
        }
    )
    weighs_probes = True

    class Options(KLOptions, SurrogateOptions):
        """Advantages, clips and the weights of value loss and entropy."""

        discount: Probability = Field(1.0, description="Of the next token in a probe.")
        turn_discount: Probability = Field(0.9, description="Of the next turn.")
        decay: Probability = Field(0.95, description="GAE's lambda.")
        turn_weights: TurnWeights = Field("equal", description=TURN_WEIGHTS)
        final_turn: Literal["truncated", "terminated"] = Field(
            "truncated",
            description="Whether the turn limit cuts a conversation, whose future is then "
            "predicted, or ends it.",
        )
        whiten_advantages: bool = Field(
            True, description="Mean 0 and spread 1 over the tokens of the experience."
        )
        value_coefficient: NonNegative = Field(0.1, description="Weight of the value loss.")
        value_clip: Positive | None = Field(
            0.2, description="How far a prediction may move per experience, reward units."
        )
        entropy_coefficient: NonNegative = Field(0.0, description="Reward units per nat.")
        aggregation: Aggregation = "token_mean"
        kl: Literal["none", "reward", "loss"] = "reward"
        kl_estimator: Literal["k1", "k2", "k3"] = "k1"

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        surrogate = surrogate_of(options, level="token")
        penalty = KLPenalty(options)
        self._policy = PolicyGradient(system, surrogate, options.aggregation, penalty)
        self._value_head = ValueHead(system.attacker)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference too, if there is a KL penalty."""
        return cls.needs | needs_for_kl(options)

    def flatten(self, graph: Graph) -> Sequence[TurnEstimate]:
        """Every turn with its advantages; whitened, if they are, over this graph alone."""
        return self.flatten_all([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[TurnEstimate]:
        """Every turn with advantages from the values that the policy that sampled it predicts."""
        options = self.options
        estimates = turn_estimates(
            graphs,
            self.system,
            self._value_head,
            account=self._policy.penalty.account,
            is_cut=options.final_turn == "truncated",
            discount=options.discount,
            turn_discount=options.turn_discount,
            decay=options.decay,
        )
        found = _whiten(estimates) if options.whiten_advantages else estimates
        return found if options.turn_weights == "equal" else _weigh(found)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Updates the KL coefficient."""
        return self._policy.penalty.remember(graphs)

    def collate(self, steps: Sequence[TurnEstimate]) -> PPOBatch:
        """Probes as rows of one forward pass."""
        policy = self._policy.collate(steps)
        width, device = policy.mask.shape[1], policy.mask.device
        return PPOBatch(
            policy,
            pad_lists([step.values for step in steps], width).to(device),
            pad_lists([step.returns for step in steps], width).to(device),
        )

    def step(self, batch: PPOBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """Surrogate, value loss and entropy bonus, summed over the tokens."""
        rows, is_warm = batch.policy.rows, self.options.entropy_coefficient > 0.0
        attacker = self.system.attacker
        output = token_outputs(attacker.model, rows, with_entropies=is_warm, plan=attacker.plan)
        loss, metrics = self._policy.loss(output.logprobs, batch.policy)
        extra, figures = self._value_and_entropy(batch, output)
        return loss + extra, {**metrics, **figures}

    def parameters(self) -> Sequence[Parameter]:
        """The value head."""
        return self._value_head.parameters()

    def state(self) -> Mapping[str, Tensor]:
        """The value head and the KL coefficient."""
        return {**self._value_head.state(), **self._policy.penalty.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores both."""
        self._value_head.load_state(state)
        self._policy.penalty.load_state(state)

    def _value_and_entropy(
        self, batch: PPOBatch, output: TokenOutputs
    ) -> tuple[Float[Tensor, ""], dict[str, float]]:
        options, mask = self.options, batch.policy.mask
        values = self._value_head(output.states)
        errors = value_losses(values, batch.old_values, batch.returns, clip=options.value_clip)
        losses = options.value_coefficient * errors
        figures = {
            "value_loss": mean_of(errors, batch.policy),
            "value": mean_of(values, batch.policy),
            "return": mean_of(batch.returns, batch.policy),
        }
        if options.entropy_coefficient > 0.0:
            losses = losses - options.entropy_coefficient * output.entropies
            figures["entropy_nats"] = mean_of(output.entropies, batch.policy)
        return aggregate(losses, mask, mode=options.aggregation), figures


def _weigh(estimates: Sequence[TurnEstimate]) -> list[TurnEstimate]:
    """The same with advantages times what each turn counts."""
    return [
        replace(each, advantages=tuple(each.weight * gain for gain in each.advantages))
        for each in estimates
    ]


def _whiten(estimates: Sequence[TurnEstimate]) -> list[TurnEstimate]:
    """The same with advantages of mean 0 and spread 1 over all trained tokens."""
    width = max((len(estimate.advantages) for estimate in estimates), default=0)
    mask = pad_lists([estimate.node.probe_mask for estimate in estimates], width).bool()
    rows = masked_whiten(pad_lists([estimate.advantages for estimate in estimates], width), mask)
    return [
        replace(estimate, advantages=tuple(row[: len(estimate.advantages)]))
        for estimate, row in zip(estimates, torch.where(mask, rows, 0.0).tolist(), strict=True)
    ]
