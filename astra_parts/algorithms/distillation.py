"""On-policy distillation: the attacker learns, on its own probes, to write like a teacher.

GKD, arXiv:2306.13649, and Thinking Machines, "On-Policy Distillation" (2025). Every token is
rewarded by how much likelier the teacher finds it, so the reverse KL attacker || teacher falls; the
reward of the turn is not used. The teacher is the System's reference (``models.reference`` may
name a stronger attacker), or its target where both share a tokenizer, which makes for probes in the
target's own manner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from pydantic import Field

from astra_core.algorithm import Need
from astra_core.algorithms.credit import can_teach
from astra_core.config import Count, Positive, Probability, Section
from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Graph, Node
from astra_core.system import System
from astra_core.targets.causal_lm import speaker_of
from astra_parts.algorithms.functional import Aggregation, distillation_advantages
from astra_parts.algorithms.kl_penalty import KLOptions, KLPenalty, known_reference
from astra_parts.algorithms.policy import PolicyAlgorithm, PolicyGradient
from astra_parts.algorithms.surrogates import ClipOptions, surrogate_with_clips


@dataclass(frozen=True, slots=True)
class TaughtProbe:
    """A probe, and the teacher's log-ratio of each of its tokens."""

    node: Node
    advantages: tuple[float, ...]


class Distillation(PolicyAlgorithm):
    """Clipped surrogate whose advantages are the teacher's log-ratios."""

    class Options(ClipOptions):
        """Who teaches, and how far a token may move."""

        teacher: Literal["reference", "target"] = "reference"
        coefficient: Positive = Field(1.0, description="Advantage per nat.")
        discount: Probability = Field(
            0.0, description="Share of the next token's advantage added to each."
        )
        horizon: Count | None = Field(
            None, description="Tokens whose advantages count, the own one included; null is all."
        )
        aggregation: Aggregation = "token_mean"

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        if options.teacher == "target" and speaker_of(system.target) is None:
            msg = (
                "training.algorithm.options.teacher must be a language model, got a "
                f"{type(system.target).__name__}; use teacher 'reference'"
            )
            raise ConfigurationError(msg)
        if options.teacher == "target" and not system.shares_tokenizer:
            msg = (
                "training.algorithm.options.teacher must share the attacker's tokenizer, got a "
                "target with another; use teacher 'reference'"
            )
            raise ConfigurationError(msg)
        surrogate = surrogate_with_clips(options, level="token")
        free = KLPenalty(KLOptions())
        self._policy = PolicyGradient(system, surrogate, options.aggregation, free)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference, or a target that shares the attacker's tokens."""
        is_target = getattr(options, "teacher", None) == "target"
        return frozenset({"shared_tokenizer" if is_target else "reference"})

    def flatten(self, graph: Graph) -> Sequence[TaughtProbe]:
        """Every probe with the teacher's log-probability of each token."""
        nodes = [node for node in graph.nodes() if can_teach(node)]
        opinions = self._opinions(nodes)
        return [
            TaughtProbe(node, self._advantages(node, opinion))
            for node, opinion in zip(nodes, opinions, strict=True)
        ]

    def _opinions(self, nodes: Sequence[Node]) -> list[tuple[float, ...]]:
        """Log-probabilities of the probes under the teacher, nats."""
        system = self.system
        if self.options.teacher == "reference" or system.reference_is_target:
            return [known_reference(node) for node in nodes]
        # Not node.target_logprobs: the target may have read a context that was cut elsewhere.
        return cast(LanguageModel, speaker_of(system.target)).continuation_logprobs(
            [node.context_ids for node in nodes],
            [node.probe_ids for node in nodes],
            tokens_per_batch=system.config.tokens_per_batch,
        )

    def _advantages(self, node: Node, opinion: Sequence[float]) -> tuple[float, ...]:
        rows = distillation_advantages(
            torch.tensor([node.probe_logprobs]),
            torch.tensor([tuple(opinion)]),
            torch.tensor([node.probe_mask]),
            coefficient=self.options.coefficient,
            discount=self.options.discount,
            num_steps=self.options.horizon,
        )
        return tuple(rows[0].tolist())
