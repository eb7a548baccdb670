"""GRPO: siblings are standardised against each other, and a clipped ratio bounds each update.

DeepSeekMath, arXiv:2402.03300. Its descendants are options: ``scale: none`` with
``aggregation: constant_length`` is Dr. GRPO (arXiv:2503.20783); ``token_mean``, ``clip_high: 0.28``
and ``drop_flat_groups`` are DAPO (arXiv:2503.14476); ``ratio: sequence`` with ``sequence_mean`` is
GSPO (arXiv:2507.18071), whose clips are of the order 3e-4.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithm import Need
from astra_core.algorithms.credit import CreditedTurn, values_and_groups
from astra_core.algorithms.functional import MIN_SPREAD
from astra_core.config import Positive, Section
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import path_of
from astra_core.rollout import Graph
from astra_core.system import System
from astra_parts.algorithms.functional import (
    AdvantageScale,
    group_advantages,
    group_advantages_over_runs,
)
from astra_parts.algorithms.kl_penalty import needs_for_kl
from astra_parts.algorithms.policy import PolicyAlgorithm, PolicyGradient, PolicyOptions, RatioLevel
from astra_parts.algorithms.policy_batch import PolicyStep, policy_steps
from astra_parts.algorithms.surrogates import SurrogateOptions, surrogate_of

# Values of the option ``compare`` that look at several trees of one prompt.
_OVER_RUNS = frozenset({"prompt", "runs"})


@dataclass(frozen=True, slots=True)
class RunTurns:
    """Turns that can be learned from, and the run that each belongs to.

    Attributes:
        turns: Equal ``group`` where they are compared with each other.
        runs: One per turn; runs of equal numbers in different groups are different runs.
    """

    turns: Sequence[CreditedTurn]
    runs: Sequence[int]


class GRPO(PolicyAlgorithm):
    """Advantages standardised within each group, of siblings by default; clipped surrogate."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})
    # A group without a success differs by novelty alone, which its spread would blow up to as much
    # as a success; clipped tokens would stop after a fraction of a nat. The KL to the reference
    # holds the attacker instead; at 0.02 a nat the 12 that dpo moves cost a quarter of a success.
    options_for_turns: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "turn_weights": "visits",
            "scale": "none",
            "surrogate": "cispo",
            "kl": "reward",
            "kl_estimator": "k1",
            "kl_coefficient": 0.02,
        }
    )
    weighs_probes = True

    class Options(PolicyOptions, SurrogateOptions):
        """How groups are compared, and how far a token may move."""

        compare: Literal["siblings", "conversations", "prompt", "runs"] = Field(
            "siblings",
            description="A probe with those after the same context; with all of its tree, where "
            "each first probe starts a conversation and conversations weigh alike; with all of its "
            "prompt's runs; or with those where runs weigh alike (NexRL with run ids). The last "
            "two need rollouts.runs_per_prompt of at least 2.",
        )
        scale: AdvantageScale = Field(
            "group",
            description="Centred returns are divided by the spread of their group, by that of the "
            "whole experience, or by nothing, so that groups keep their own scale.",
        )
        min_spread: Positive = Field(
            MIN_SPREAD, description="A group whose returns spread no more teaches nothing."
        )
        drop_flat_groups: bool = Field(
            False, description="Such groups are left out, also from what the loss is divided by."
        )
        ratio: Literal["token", "sequence"] = Field(
            "token", description="Of each token, or the geometric mean over the probe."
        )

        @model_validator(mode="after")
        def _means_are_scaled(self) -> Self:
            if self.compare in {"conversations", "runs"} and self.scale != "group":
                msg = f"scale must be 'group' when compare is '{self.compare}'"
                raise ValueError(msg)
            return self

        @model_validator(mode="after")
        def _a_sequence_is_clipped(self) -> Self:
            if self.ratio == "sequence" and self.surrogate != "clip":
                msg = f"ratio must be 'token' when surrogate is '{self.surrogate}'"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._require_flatten()
        level: RatioLevel = "token" if options.ratio == "token" else "sequence_mean"
        surrogate = surrogate_of(options, level=level)
        self._policy = PolicyGradient.of(options, system=system, surrogate=surrogate)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """Siblings or runs, whichever are compared; the reference if there is a KL penalty."""
        compares_runs = getattr(options, "compare", "siblings") in _OVER_RUNS
        needs: frozenset[Need] = frozenset({"runs"}) if compares_runs else cls.needs
        return needs | needs_for_kl(options)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn, compared with others of its tree."""
        return self._steps([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        """Every turn, tree by tree; ``compare`` may look at all runs, ``scale`` at all trees."""
        return self._steps(graphs) if self._is_whole else super().flatten_all(graphs)

    @property
    def _is_over_runs(self) -> bool:
        return self.options.compare in _OVER_RUNS

    @property
    def _is_whole(self) -> bool:
        """Whether trees are looked at together."""
        return self._is_over_runs or self.options.scale == "batch"

    def _require_flatten(self) -> None:
        """Checks that a ``flatten`` of a derived class is one that would be called."""
        own = type(self)
        is_asked = not self._is_whole or own.flatten_all is not GRPO.flatten_all
        if own.flatten is not GRPO.flatten and not is_asked:
            msg = (
                f"algorithm '{path_of(self)}' must override flatten_all() instead of flatten(), "
                "which sees one tree, when compare is 'prompt' or 'runs' or scale is 'batch'"
            )
            raise ConfigurationError(msg)

    def _comparisons(self, graphs: Sequence[Graph]) -> RunTurns:
        """The turns that can be learned from, and with which others each is compared."""

        def turns_of(own: Sequence[Graph]) -> list[CreditedTurn]:
            return self._policy.turns(own, self.options)

        if self._is_over_runs:
            return turns_by_prompt(graphs, turns_of)
        turns = turns_of(graphs)
        return RunTurns(turns, [turn.node.path[0] for turn in turns])

    def _steps(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        compared = self._comparisons(graphs)
        steps = policy_steps(compared.turns, self._advantages(compared))
        if not self.options.drop_flat_groups:
            return steps
        pairs = list(zip(compared.turns, steps, strict=True))
        lively = {turn.group for turn, step in pairs if step.advantage != 0.0}
        return [step for turn, step in pairs if turn.group in lively]

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts the groups without gradient and updates the KL coefficient."""
        compared = self._comparisons(graphs)
        turns = run_means(compared) if self.options.compare == "runs" else compared.turns
        return self._policy.remember(graphs, turns, min_spread=self.options.min_spread)

    def _advantages(self, compared: RunTurns) -> Float[Tensor, " N"]:
        options = self.options
        values, groups = values_and_groups(compared.turns)
        if options.compare in {"conversations", "runs"}:
            runs = torch.tensor(compared.runs, dtype=torch.long)
            # The conversations of one tree are of one prompt.
            prompts = groups if self._is_over_runs else torch.zeros_like(groups)
            return group_advantages_over_runs(values, prompts, runs, min_spread=options.min_spread)
        return group_advantages(values, groups, scale=options.scale, min_spread=options.min_spread)


def turns_by_prompt(
    graphs: Sequence[Graph], turns_of: Callable[[Sequence[Graph]], Sequence[CreditedTurn]]
) -> RunTurns:
    """The turns of these graphs in order, grouped by prompt."""
    groups: dict[str, int] = {}
    turns: list[CreditedTurn] = []
    runs: list[int] = []
    for graph in graphs:
        group = groups.setdefault(graph.prompt.prompt_id, len(groups))
        own = [replace(turn, group=group) for turn in turns_of([graph])]
        turns += own
        runs += [graph.run_id] * len(own)
    return RunTurns(turns, runs)


def run_means(compared: RunTurns) -> list[CreditedTurn]:
    """For every run one turn of it, worth the mean of the run."""
    pairs = zip(compared.turns, compared.runs, strict=True)
    by_run = sorted(pairs, key=_run_of)
    means = []
    for _, pair in groupby(by_run, key=_run_of):
        own = [turn for turn, _ in pair]
        means.append(replace(own[0], value=fmean(turn.value for turn in own)))
    return means


def _run_of(pair: tuple[CreditedTurn, int]) -> tuple[int, int]:
    turn, run = pair
    return turn.group, run
