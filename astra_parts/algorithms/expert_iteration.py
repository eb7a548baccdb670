"""Expert iteration: the attacker imitates the best of its own rollouts.

Best of each prompt: RAFT, arXiv:2304.06767; all above a threshold: ReST, arXiv:2308.08998; weighted
by reward: the expectation of the random draws in neural interactive proofs. A rollout is a
path from the first turn to a last one; its reward is the sum over its turns.
"""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import ALL_GIVEN, Algorithm, Need
from astra_core.algorithms.credit import can_teach
from astra_core.config import Count, NonNegative, Section
from astra_core.errors import ConfigurationError
from astra_core.rollout import Graph
from astra_parts.algorithms.functional import (
    reward_weighted_probabilities,
    selection_size,
    threshold_selection,
    top_k_selection,
)
from astra_parts.algorithms.policy_batch import PolicyBatch, PolicyStep
from astra_parts.algorithms.sft import CopyAggregation, copied_batch, copied_steps, copying_loss


class ExpertIteration(Algorithm):
    """Likelihood of selected rollouts."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    class Options(Section):
        """Which rollouts are imitated."""

        selection: Literal["top_k", "threshold", "reward_weighted"] = "top_k"
        k: Count = Field(4, description="Rollouts of each prompt that are copied (top_k).")
        fraction: float | None = Field(
            None,
            gt=0.0,
            le=1.0,
            description="Share of each prompt's rollouts that is copied instead of k of them, "
            "rounded down, but at least one (top_k).",
        )
        threshold: float = Field(
            0.5, description="Reward of a rollout from which it is copied (threshold)."
        )
        minimum: float | None = Field(
            None,
            description="Reward up to which only exploration copies (reward_weighted); null is the "
            "prompt's lowest.",
        )
        exploration: NonNegative = Field(
            0.01, description="Mass spread evenly over all rollouts (reward_weighted)."
        )
        aggregation: CopyAggregation = "token_mean"

    options: Options

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """Several rollouts of a prompt, unless each is judged by itself."""
        is_judged_alone = getattr(options, "selection", None) == "threshold"
        return frozenset() if is_judged_alone else frozenset({"siblings"})

    @classmethod
    def check_needs(
        cls, options: Section, sampler_options: Section, *, gives: AbstractSet[Need] = ALL_GIVEN
    ) -> None:
        """Choosing the best of a prompt's rollouts needs more than one of them."""
        width = getattr(sampler_options, "tree_width", None)
        if width == 1 and "siblings" in cls.needs_with(options):
            msg = (
                "rollouts.sampler.options.tree_width must be at least 2 for ExpertIteration with "
                "selection 'top_k' or 'reward_weighted', which compare a prompt's rollouts, got 1; "
                "raise it or select by 'threshold'"
            )
            raise ConfigurationError(msg)
        super().check_needs(options, sampler_options, gives=gives)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn of the selected rollouts once, weighted by how many of them it is in."""
        paths = list(graph.paths(are_judged=True))
        copies = self.copies([[node.reward for node in path] for path in paths])
        steps = copied_steps(
            (node, weight) for path, weight in zip(paths, copies, strict=True) for node in path
        )
        return [step for step in steps if step.advantage > 0.0 and can_teach(step.node)]

    def copies(self, rewards: Sequence[Sequence[float]]) -> list[float]:
        """The weight of each rollout, given the rewards of its turns; may be a fraction."""
        options = self.options
        totals = torch.tensor([sum(turns) for turns in rewards], dtype=torch.float64)
        if options.selection == "top_k":
            share, k = options.fraction, options.k
            k = k if share is None else selection_size(len(totals), fraction=share)
            chosen = top_k_selection(totals, k=k).double()
        elif options.selection == "threshold":
            chosen = threshold_selection(totals, threshold=options.threshold).double()
        else:
            shares = reward_weighted_probabilities(
                totals, minimum=options.minimum, exploration=options.exploration
            )
            chosen = shares * len(totals)
        copies: list[float] = chosen.tolist()
        return copies

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts rollouts and those imitated; stores nothing."""
        paths = [list(graph.paths(are_judged=True)) for graph in graphs]
        copies = [self.copies([[node.reward for node in path] for path in own]) for own in paths]
        return {
            "rollouts": float(sum(len(own) for own in paths)),
            "copied_rollouts": float(sum(weight > 0.0 for own in copies for weight in own)),
        }

    def collate(self, steps: Sequence[PolicyStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return copied_batch(steps, self.system, aggregation=self.options.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The weighted negative log-likelihood, summed over the probes."""
        return copying_loss(self.system, batch, aggregation=self.options.aggregation)
