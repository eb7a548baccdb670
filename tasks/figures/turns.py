"""Success by turn, and reward, of an evaluation's rollouts: figures only, no text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from astra_core.metrics.statistics import bootstrap_mean, rate_interval
from astra_core.rollout import Graph, Node, by_prompt
from tasks.records.evaluation import Span

FILE = "turns.json"
"""The file's name in an examination."""


@dataclass(frozen=True, slots=True)
class TurnRates:
    """One attacker's success, turn by turn.

    ``success``: for each turn the share of rollouts with a success by then, mean over prompts.
    """

    success: tuple[Span, ...]
    reward: Span


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """The rates of both attackers, as in ``turns.json``."""

    attacker: TurnRates
    baseline: TurnRates


def turn_rates(
    graphs: Sequence[Graph], *, threshold: float, num_resamples: int, confidence: float, seed: int
) -> TurnRates:
    """The rates of an attacker's rollouts, with bootstrap intervals over prompts."""
    how: dict[str, Any] = {"num_resamples": num_resamples, "confidence": confidence, "seed": seed}
    prompts = by_prompt(graphs)
    paths = [
        [path for own in runs for path in own.paths() if not all(n.is_unjudged for n in path)]
        for runs in prompts
    ]
    depth = max((len(path) for own in paths for path in own), default=0)
    rewards = [
        _mean([n.reward for own in runs for n in own.nodes() if n.is_judged]) for runs in prompts
    ]
    shares = [
        [_mean([float(_succeeds(path[:turn], threshold)) for path in own]) for own in paths]
        for turn in range(1, depth + 1)
    ]
    rates = tuple(rate_interval(values, **how) for values in shares)
    return TurnRates(rates, bootstrap_mean(rewards, **how))


def _succeeds(path: Sequence[Node], threshold: float) -> bool:
    return any(node.is_judged and node.score >= threshold for node in path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
