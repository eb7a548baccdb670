"""The pull to the reference: a KL penalty, in the reward or in the loss, fixed or adaptive.

In the reward it lowers the return of probes the reference would not have said, with the
log-probabilities of sampling time. In the loss it is differentiated at every update. There ``k2``
has the gradient of the KL on-policy, ``k3`` the lower variance in its value; the gradient of ``k1``
is zero in expectation and says nothing about the reference (Tang and Munos, arXiv:2506.09477), so
it belongs in the reward.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithm import Need
from astra_core.algorithms.credit import can_teach
from astra_core.algorithms.functional import kl_estimates
from astra_core.config import NonNegative, Positive, Section
from astra_core.errors import DataError
from astra_core.rollout import Graph, Node
from astra_core.settings.sections import refuse_unread
from astra_parts.algorithms.functional import (
    adaptive_coefficient,
    importance_weighted_kl,
    kl_penalised_rewards,
    stepped_coefficient,
)


class KLOptions(Section):
    """What counts of a reward, where the KL penalty applies, and how large it is."""

    is_policy_gradient: ClassVar[bool] = True

    clip_reward: Positive | None = Field(
        None, description="Holds a turn's own reward within minus this and this."
    )
    kl: Literal["none", "reward", "loss"] = Field(
        "none", description="Where the KL penalty applies."
    )
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_importance_weighted: bool = Field(
        False,
        description="In the loss: each token's KL times its ratio to the policy that sampled, "
        "which makes value and gradient unbiased after the first update too (DeepSeek-V3.2).",
    )
    kl_coefficient: NonNegative = Field(0.05, description="Reward units per nat; at first.")
    kl_control: Literal["fixed", "proportional", "stepped"] = Field(
        "fixed",
        description="How the coefficient follows kl_target_nats: not at all, in proportion to the "
        "relative error (arXiv:1909.08593), or doubled and halved (arXiv:1707.06347, section 4).",
    )
    kl_target_nats: Positive | None = Field(
        None, description="Wanted mean KL of a probe, summed over its tokens."
    )
    kl_horizon: Positive = Field(
        10_000.0, description="Probes over which proportional control moves by 20 %."
    )

    @model_validator(mode="after")
    def _control_has_a_target(self) -> Self:
        if self.kl_control != "fixed" and self.kl_target_nats is None:
            msg = f"kl_control '{self.kl_control}' must have a kl_target_nats; or use 'fixed'"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _every_number_is_read(self) -> Self:
        priced = ("kl_estimator", "kl_coefficient", "kl_control", "kl_target_nats", "kl_horizon")
        if self.kl == "none":
            refuse_unread(self, *priced, when="kl is 'none'")
        if self.kl_control == "fixed":
            refuse_unread(self, "kl_target_nats", "kl_horizon", when="kl_control is 'fixed'")
        if self.kl_control == "stepped":
            refuse_unread(self, "kl_horizon", when="kl_control is 'stepped'")
        return self

    @model_validator(mode="after")
    def _a_weight_has_something_to_weigh(self) -> Self:
        if self.kl_importance_weighted and (self.kl != "loss" or self.kl_estimator == "k2"):
            msg = (
                "kl_importance_weighted must be false unless kl is 'loss' with kl_estimator 'k1' "
                "or 'k3'; k2 has the gradient of the KL without a weight only"
            )
            raise ValueError(msg)
        return self


def needs_for_kl(options: Section) -> frozenset[Need]:
    """A KL penalty needs the reference's log-probabilities."""
    is_charged = isinstance(options, KLOptions) and options.kl != "none"
    return frozenset({"reference"}) if is_charged else frozenset()


class KLPenalty:
    """The coefficient, which may move from experience to experience, and what it is applied to."""

    def __init__(self, options: KLOptions) -> None:
        self._options = options
        self.coefficient = options.kl_coefficient

    def reward(self, node: Node) -> float:
        """The node's reward, minus the KL penalty of its whole probe if that is in the reward."""
        earned, costs = self.account(node)
        return earned - sum(costs)

    def account(self, node: Node) -> tuple[float, list[float]]:
        """The node's own reward and what each token costs.

        If that is asked for the reward is clipped, so that none by itself decides an update.

        Source: Mnih et al., DQN, Nature 518 (2015), methods; ``reward_clip_range`` of RLOO in TRL.
        """
        earned, limit = node.reward, self._options.clip_reward
        if limit is not None:
            # Every reward is finite here; see ``astra_core.reward.reward_graphs``.
            earned = min(max(earned, -limit), limit)
        return earned, self.token_costs(node)

    def token_costs(self, node: Node) -> list[float]:
        """The penalty of each trained token in the reward; zeros if it is not in the reward."""
        if self._options.kl != "reward":
            return [0.0] * len(node.probe_ids)
        estimates = kl_estimates(
            torch.tensor(node.probe_logprobs, dtype=torch.float64),
            torch.tensor(known_reference(node), dtype=torch.float64),
            estimator=self._options.kl_estimator,
        )[None]
        mask = torch.tensor([node.probe_mask], dtype=torch.bool)
        free = torch.zeros_like(estimates)
        priced = kl_penalised_rewards(free, estimates, mask, coefficient=self.coefficient)
        costs: list[float] = (-priced[0]).tolist()
        return costs

    def losses(
        self,
        logprobs: Float[Tensor, "B T"],
        reference_logprobs: Float[Tensor, "B T"],
        behaviour_logprobs: Float[Tensor, "B T"],
    ) -> Float[Tensor, "B T"] | None:
        """The penalty of each token in the loss; None if it is not in the loss."""
        if self._options.kl != "loss":
            return None
        estimator = self._options.kl_estimator
        estimates = kl_estimates(logprobs, reference_logprobs, estimator=estimator)
        if self._options.kl_importance_weighted:
            estimates = importance_weighted_kl(estimates, logprobs - behaviour_logprobs)
        return self.coefficient * estimates

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Moves the coefficient by the KL these probes had; returns what it is now."""
        options = self._options
        if options.kl == "none":
            return {}
        nodes = [node for graph in graphs for node in graph.nodes() if can_teach(node)]
        if nodes and options.kl_target_nats is not None and options.kl_control != "fixed":
            kl = sum(node.kl_nats for node in nodes) / len(nodes)
            self.coefficient = (
                stepped_coefficient(self.coefficient, kl, target=options.kl_target_nats)
                if options.kl_control == "stepped"
                else adaptive_coefficient(
                    self.coefficient,
                    kl,
                    target=options.kl_target_nats,
                    horizon=options.kl_horizon,
                    # Beyond one horizon a single experience could change the sign.
                    num_samples=min(len(nodes), int(options.kl_horizon) or 1),
                )
            )
        return {"kl_coefficient": self.coefficient}

    def state(self) -> Mapping[str, Tensor]:
        """The coefficient, if it can move."""
        if self._options.kl_control == "fixed":
            return {}
        return {"kl_coefficient": torch.tensor(self.coefficient, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores the coefficient."""
        if "kl_coefficient" in state:
            self.coefficient = float(state["kl_coefficient"])


def known_reference(node: Node) -> tuple[float, ...]:
    """The probe's log-probabilities under the reference."""
    if len(node.reference_logprobs) != len(node.probe_ids):
        msg = (
            f"turn {node.path} must hold {len(node.probe_ids)} reference log-probabilities, got "
            f"{len(node.reference_logprobs)}; use a sampler that computes them, such as 'tree'"
        )
        raise DataError(msg)
    return node.reference_logprobs
