"""The evaluation by which attackers are compared: fixed prompts, fixed keys, batched."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from astra_core.agents import turn_figures
from astra_core.config import EvaluationConfiguration
from astra_core.errors import BudgetError, ConfigurationError, DataError
from astra_core.errors.exception_text import suggestion
from astra_core.metrics.attack import (
    PromptOutcome,
    attack_metrics,
    prompt_outcome,
    weighted_outcome,
)
from astra_core.metrics.statistics import Interval, bootstrap_mean, rate_interval
from astra_core.reward import Reward, reward_graphs
from astra_core.rollout import Graph, Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_core.target import led_against

Value = TypeVar("Value")


class Ranks(Protocol):
    """Processes that share an evaluation, as the ``World`` of a training is."""

    def share(self, values: Sequence[Value]) -> Sequence[Value]:
        """Those of this process."""

    def whole(self, share: Sequence[Value]) -> list[Value]:
        """What all made of their shares, in the order of the values."""

    def gather(self, value: Value) -> list[Value]:
        """What each gave."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of one attacker.

    Attributes:
        intervals: Success rates and mean score with their bootstrap intervals over prompts.
        outcomes: One per prompt, in the order of the prompts.
        confirmed: For each prompt the share of rollouts that a second judge confirms; empty
            without one.
        strategies: For each graph the strategies of its hits; empty where none were looked for.
        weights: Of several targets by name, each of which was led against by every prompt: the
            graphs are those of the first, then those of the next. Empty for a single target.
    """

    intervals: dict[str, Interval]
    figures: dict[str, float]
    outcomes: tuple[PromptOutcome, ...]
    graphs: tuple[Graph, ...]
    confirmed: tuple[float, ...] = ()
    strategies: tuple[tuple[int, ...], ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    each: tuple[PromptOutcome, ...] = ()
    """The outcome of each graph."""

    def against(self, name: str) -> tuple[PromptOutcome, ...]:
        """The outcomes of one of several targets, in the order of the prompts."""
        first = list(self.weights).index(name) * len(self.outcomes)
        return self.each[first : first + len(self.outcomes)]

    def by_prompt(self, values: Sequence[Value]) -> list[tuple[Value, ...]]:
        """Values of the graphs, as those of each prompt: one for each target."""
        count = len(self.outcomes)
        return [tuple(values[at::count]) for at in range(count)]

    def prompt_means(self, values: Sequence[float]) -> tuple[float, ...]:
        """Values of the graphs, as the weighted mean of each prompt."""
        shares = tuple(self.weights.values()) or (1.0,)
        return tuple(
            fsum(share * value for share, value in zip(shares, own, strict=True))
            for own in self.by_prompt(values)
        )

    def metrics(self) -> dict[str, float]:
        """Every figure as ``eval/name``; intervals add ``_low`` and ``_high``."""
        flat = {f"eval/{name}": value for name, value in self.figures.items()}
        for name, interval in self.intervals.items():
            flat |= interval.flat(f"eval/{name}")
        return flat

    def record(self) -> dict[str, object]:
        """As JSON."""
        intervals = {name: interval.record() for name, interval in self.intervals.items()}
        return {**intervals, **self.figures}


_INTERVALS = MappingProxyType(
    {
        "attack_success_rate": "success_rate",
        "clean_attack_success_rate": "clean_success_rate",
        "first_turn_success_rate": "first_turn_success_rate",
        "attempt_success_rate": "attempt_success_rate",
        "score_mean": "score_mean",
    }
)
"""The figures with an interval, and what of a ``PromptOutcome`` each is the mean of."""


def metric_names() -> frozenset[str]:
    """Every name that ``Evaluation.metrics`` has, found without an evaluation."""
    ends = ("", "_low", "_high")
    intervals = {f"eval/{name}{end}" for name in _INTERVALS for end in ends}
    figures = {*attack_metrics((), threshold=0.5), "reward_mean"}
    return frozenset(intervals | {f"eval/{name}" for name in figures})


def require_metric(
    name: str, *, declared: Iterable[str] = (), key: str = "training.metric"
) -> None:
    """Raises ConfigurationError unless an evaluation has this metric.

    ``declared``: further names, of a trainer with its own evaluation (``metric_names``).
    """
    known = sorted(metric_names() | set(declared))
    if name not in known:
        hint = suggestion(name, known, otherwise=f"known are {known}")
        own = "" if set(declared) else " A trainer's own are its metric_names"
        msg = f"{key} must name a metric of an evaluation, got '{name}'{hint}{own}"
        raise ConfigurationError(msg)


class Evaluator:
    """Rolls the same prompts out with the same keys for every attacker."""

    def __init__(
        self,
        config: EvaluationConfiguration,
        *,
        prompts: Sequence[Prompt],
        reward: Reward,
        seed: int,
    ) -> None:
        if not prompts:
            msg = "evaluation must have at least one prompt, got 0; see evaluation.num_prompts"
            raise DataError(msg)
        self.config = config
        self._prompts = tuple(prompts)
        # A copy, because later training must not change how novel an evaluated probe is.
        self._reward = deepcopy(reward)
        self._seed = seed

    def evaluate(self, system: System, *, ranks: Ranks | None = None) -> Evaluation:
        """The evaluation of the system's attacker as it is now.

        ``ranks``: the processes that share the prompts, all of which get the whole evaluation; None
        for this one alone.

        Raises BudgetError if what the target may cost is spent, in whichever process.
        """
        config, weights = self.config, system.target.weights
        sampler = TreeSampler(
            TreeSampler.Options(),
            system=system,
            prompts=self.prompts(system),
            reward=self._reward,
            seed=self._seed,
        )
        widths = (config.num_rollouts,) + (1,) * (config.depth - 1)
        grown: dict[str, Any] = {
            "widths": widths,
            "purpose": "evaluation",
            "num_responses": config.num_responses,
        }
        own = sampler.prompts
        graphs = _grow_all(sampler, grown, ranks) if ranks else _grow(sampler, own, grown)
        found = self.evaluation_of(reward_graphs(self._reward, graphs), weights=weights)
        figures = turn_figures(system.agents, system.player, found.graphs)
        return replace(found, figures={**found.figures, **figures})

    def prompts(self, system: System) -> tuple[Prompt, ...]:
        """The prompts, and of several targets all of them against the first, then the next."""
        # Each target meets every prompt, as a run of its own with its own probes.
        return (
            tuple(
                replace(led_against(prompt, name), run_id=number)
                for number, name in enumerate(system.target.weights)
                for prompt in self._prompts
            )
            or self._prompts
        )

    def evaluation_of(
        self, graphs: Sequence[Graph], *, weights: Mapping[str, float] = MappingProxyType({})
    ) -> Evaluation:
        """The evaluation of existing rollouts.

        ``weights``: of several targets, against each of which all prompts were led; see
        ``Evaluation``. Rates are then weighted means, and each target's is told apart.

        Raises DataError if none of the replies could be judged.
        """
        config = self.config
        _require_judged(graphs)
        each = tuple(prompt_outcome(graph, threshold=config.threshold) for graph in graphs)
        count = len(graphs) // max(len(weights), 1)
        shares = tuple(weights.values()) or (1.0,)
        outcomes = tuple(weighted_outcome(each[at::count], shares) for at in range(count))

        def interval(name: str, outcomes: Sequence[PromptOutcome] = outcomes) -> Interval:
            mean_of = bootstrap_mean if name == "score_mean" else rate_interval
            return mean_of(
                [asdict(outcome)[name] for outcome in outcomes],
                num_resamples=config.num_resamples,
                confidence=config.confidence,
                seed=self._seed,
            )

        figures = attack_metrics(graphs, threshold=config.threshold)
        figures["reward_mean"] = mean_reward(graphs)
        return Evaluation(
            intervals={
                **{name: interval(own) for name, own in _INTERVALS.items()},
                **{
                    f"attack_success_rate_{name}": interval(
                        "success_rate", each[number * count : (number + 1) * count]
                    )
                    for number, name in enumerate(weights)
                },
            },
            figures=figures,
            outcomes=outcomes,
            graphs=tuple(graphs),
            weights=dict(weights),  # a default that cannot be pickled otherwise
            each=each,
        )


def _grow(sampler: TreeSampler, prompts: Sequence[Prompt], how: dict[str, Any]) -> list[Graph]:
    """The trees of prompts, by the system's crew where it has one."""
    system = sampler.system
    if system.crew is None or system.crew.is_plain:
        with system.target.evaluating():
            return sampler.grow(prompts, iteration=0, **how)
    graphs = system.crew.roll_out(sampler, prompts, iteration=0, grown=how)
    sampler.refuse_many_failures(graphs)
    return graphs


def _grow_all(sampler: TreeSampler, how: dict[str, Any], ranks: Ranks) -> list[Graph]:
    """All trees, of which this process makes its share."""
    own, graphs, spent = ranks.share(sampler.prompts), [], ""
    # The failure limit is a share of all prompts, not of one process's.
    try:
        with sampler.in_parts():
            graphs = _grow(sampler, own, how) if own else []
    except BudgetError as error:  # the others must not wait for this process
        spent = str(error)
    for reason in filter(None, ranks.gather(spent)):
        raise BudgetError(reason)
    every = ranks.whole(graphs)
    sampler.refuse_many_failures(every)
    return every


def _require_judged(graphs: Sequence[Graph]) -> None:
    unjudged = [node for graph in graphs for node in graph.nodes() if node.is_unjudged]
    if unjudged and not any(node.is_judged for graph in graphs for node in graph.nodes()):
        msg = (
            f"system.scorer must judge some reply of an evaluation, got none of {len(unjudged)} "
            f"turns judged; the first: {unjudged[0].response_unjudged[0]}"
        )
        raise DataError(msg)


def mean_reward(graphs: Sequence[Graph]) -> float:
    """Mean reward of the turns that were judged."""
    rewards = [node.reward for graph in graphs for node in graph.nodes() if node.is_judged]
    return sum(rewards) / len(rewards) if rewards else 0.0
