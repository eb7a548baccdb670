"""GRPO: siblings are standardised against each other, and a clipped ratio bounds each update.

DeepSeekMath, arXiv:2402.03300. Its descendants are options: ``scale_by_spread: false`` with
``aggregation: constant_length`` is Dr. GRPO (arXiv:2503.20783); ``token_mean``, ``clip_high: 0.28``
and ``drop_flat_groups`` are DAPO (arXiv:2503.14476); ``ratio: sequence`` with ``sequence_mean`` is
GSPO (arXiv:2507.18071), whose clips are of the order 3e-4.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import (
    credited_turns,
    flat_group_figures,
    values_and_groups,
)
from astra_core.algorithms.functional import (
    MIN_SPREAD,
    clipped_surrogate,
    group_advantages,
    is_clipped,
)
from astra_core.algorithms.kl_penalty import KLPenalty, needs_for_kl
from astra_core.algorithms.policy import (
    PolicyBatch,
    PolicyOptions,
    PolicyStep,
    collated,
    log_ratios,
    mean_of,
    policy_loss,
    policy_steps,
)
from astra_core.config import Positive, Section
from astra_core.engine.logprobs import token_logprobs
from astra_core.rollout import Graph
from astra_core.system import System


class GRPO(Algorithm):
    """Advantages standardised within each group of siblings, and the clipped surrogate."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})

    class Options(PolicyOptions):
        """How groups are compared, and how far a token may move."""

        scale_by_spread: bool = Field(
            default=True, description="False only centres, so that groups keep their own scale."
        )
        min_spread: Positive = Field(
            default=MIN_SPREAD, description="A group whose returns spread no more teaches nothing."
        )
        drop_flat_groups: bool = Field(
            default=False,
            description="Such groups are left out, also from what the loss is divided by.",
        )
        ratio: Literal["token", "sequence"] = Field(
            default="token", description="Of each token, or the geometric mean over the probe."
        )
        clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
        clip_high: Positive = 0.2
        dual_clip: float | None = Field(
            default=None, gt=1.0, description="Bounds the loss of a bad token; 3 is usual."
        )

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._penalty = KLPenalty(options)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference too, where KL to it is charged."""
        return cls.needs | needs_for_kl(options)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn, compared with its siblings."""
        options = self.options
        turns = credited_turns([graph], options, reward=self._penalty.reward)
        advantages = group_advantages(
            *values_and_groups(turns),
            scale_by_spread=options.scale_by_spread,
            min_spread=options.min_spread,
        )
        steps = policy_steps(turns, advantages)
        if not options.drop_flat_groups:
            return steps
        pairs = list(zip(turns, steps, strict=True))
        lively = {turn.group for turn, step in pairs if step.advantage != 0.0}
        return [step for turn, step in pairs if turn.group in lively]

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts the groups that taught nothing and updates the KL coefficient."""
        turns = credited_turns(graphs, self.options, reward=self._penalty.reward)
        figures = flat_group_figures(turns, min_spread=self.options.min_spread)
        return {**figures, **self._penalty.remember(graphs)}

    def collate(self, steps: Sequence[PolicyStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return collated(steps, self.system, aggregation=self.options.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The clipped surrogate, summed over the tokens."""
        options = self.options
        clips = {"clip_low": options.clip_low, "clip_high": options.clip_high}
        attacker = self.system.attacker
        logprobs = token_logprobs(attacker.model, batch.rows, plan=attacker.plan)
        level: Literal["token", "sequence_mean"] = (
            "token" if options.ratio == "token" else "sequence_mean"
        )
        ratios = log_ratios(logprobs, batch, level=level)
        losses = clipped_surrogate(ratios, batch.advantages, **clips, dual_clip=options.dual_clip)
        clipped = is_clipped(ratios, batch.advantages, **clips)
        loss, metrics = policy_loss(
            logprobs, losses, batch, aggregation=options.aggregation, penalty=self._penalty
        )
        return loss, {**metrics, "clipped": mean_of(clipped.expand_as(batch.mask), batch)}

    def state(self) -> Mapping[str, Tensor]:
        """The KL coefficient."""
        return self._penalty.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts it back."""
        self._penalty.load_state(state)
