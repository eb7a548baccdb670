"""The statistics that decide whether a candidate is better than what it would replace.

Both are examined on the same prompts, so each prompt gives one difference, and prompts are what is
resampled: the attempts on one prompt stay together. All of it is arithmetic; no store, no files.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from astra_core.errors import DataError
from astra_core.metrics.statistics import bootstrap_mean
from tasks.params.schema import PromotionConfiguration


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much more often the candidate succeeds, prompt by prompt.

    Attributes:
        gain: Mean over prompts of candidate minus champion, in success rate.
        low: Lower end of the gain's interval.
        high: Upper end.
        candidate: Success rate of the candidate.
        champion: Success rate of what it would replace.
        num_prompts: Prompts both were examined on.
        confidence: Probability inside the interval.
    """

    gain: float
    low: float
    high: float
    candidate: float
    champion: float
    num_prompts: int
    confidence: float

    def describe(self) -> str:
        """Gain and interval in one clause."""
        return (
            f"gain {self.gain:+.3f} ({self.confidence:.0%} interval {self.low:+.3f} to "
            f"{self.high:+.3f}, {self.num_prompts} prompts)"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the gate opens.

    Attributes:
        passed: True when every rule holds.
        reasons: The rules that do not hold, or the one sentence that says why all do.
    """

    passed: bool
    reasons: tuple[str, ...]


def compare(
    candidate: pd.DataFrame,
    champion: pd.DataFrame,
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
    column: str = "success_rate",
) -> Comparison:
    """The candidate's gain over the champion by a paired bootstrap of the prompts.

    Args:
        candidate: One row per prompt: ``prompt_id`` and the column.
        champion: The same prompts, in any order.
        confidence: Probability inside the percentile interval.
        num_resamples: Of the prompts, with replacement.
        seed: Same seed, same interval.
        column: What is compared, in [0, 1].

    Raises:
        DataError: A table is empty, repeats a prompt, has a value that is not in [0, 1], or the two
            do not hold the same prompts.
    """
    ours = _rates(candidate, column, "candidate")
    theirs = _rates(champion, column, "champion")
    if set(ours.index) != set(theirs.index):
        shared = len(set(ours.index) & set(theirs.index))
        msg = (
            f"candidate and champion must be examined on the same prompts, got {len(ours)} and "
            f"{len(theirs)} prompts of which {shared} are shared; evaluate both anew"
        )
        raise DataError(msg)
    # Sorted, so that the interval does not depend on the order of rows in a file.
    ours = ours.sort_index()
    # A prompt of which nobody could judge a reply of either says nothing about the two.
    difference = (ours - theirs.reindex(ours.index)).dropna().tolist()
    if not difference:
        msg = "candidate and champion must share a judged prompt, got none; see system.scorer"
        raise DataError(msg)
    interval = bootstrap_mean(
        difference, num_resamples=num_resamples, confidence=confidence, seed=seed
    )
    return Comparison(
        gain=interval.value,
        low=interval.low,
        high=interval.high,
        candidate=float(ours.mean()),
        champion=float(theirs.mean()),
        num_prompts=len(difference),
        confidence=confidence,
    )


def decide(
    comparison: Comparison,
    *,
    candidate: Mapping[str, Any],
    untrained: Mapping[str, Any],
    rules: PromotionConfiguration,
) -> Verdict:
    """Whether the candidate may become champion.

    Args:
        comparison: Candidate against what it would replace.
        candidate: The candidate's figures, ``unique_probes`` and ``distinct_2`` among them.
        untrained: The untrained attacker's figures, ``distinct_2`` among them.
        rules: What it takes.

    Raises:
        DataError: A figure is missing or is no number.
    """
    floor = rules.min_distinct_2_ratio * _figure(untrained, "distinct_2", "untrained attacker")
    too_few = (
        f"prompts examined must be at least {rules.min_prompts}, got {comparison.num_prompts}; "
        "raise evaluation.num_prompts"
    )
    too_little = (
        f"lower end of the gain must lie above {rules.min_lift:g}, got {comparison.describe()}; "
        "train longer or evaluate more prompts"
    )
    checks = (
        (comparison.num_prompts >= rules.min_prompts, too_few),
        (comparison.low > rules.min_lift, too_little),
        _floor_check(candidate, "unique_probes", rules.min_unique_probes),
        _floor_check(candidate, "distinct_2", floor),
    )
    failed = tuple(reason for holds, reason in checks if not holds)
    passed = not failed
    return Verdict(passed, failed or (f"{comparison.describe()} lies above {rules.min_lift:g}",))


def _floor_check(candidate: Mapping[str, Any], name: str, floor: float) -> tuple[bool, str]:
    value = _figure(candidate, name, "candidate")
    reason = (
        f"{name} must be at least {floor:.3f}, got {value:.3f}; the attacker repeats itself, "
        "strengthen the novelty reward or the KL penalty"
    )
    return value >= floor, reason


def _figure(figures: Mapping[str, Any], name: str, owner: str) -> float:
    """One figure, be it a number or an interval with a ``value``."""
    value = figures.get(name)
    if isinstance(value, Mapping):
        value = value.get("value")
    if not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"{name} of the {owner} must be a finite number, got {value!r}; evaluate it anew"
        raise DataError(msg)
    return float(value)


def _rates(table: pd.DataFrame, column: str, owner: str) -> "pd.Series[float]":
    """The column by prompt id, checked."""
    missing = [name for name in ("prompt_id", column) if name not in table.columns]
    if missing:
        msg = (
            f"{owner}'s table must have columns prompt_id and {column}, got {list(table.columns)}; "
            "run the stage evaluation"
        )
        raise DataError(msg)
    by_prompt = table.set_index("prompt_id")
    rates = by_prompt[column].astype(float)
    is_gap = rates.isna() & (by_prompt.get("num_unjudged", 0) > 0)
    problem = _problem(rates.mask(is_gap, 0.0))
    if problem:
        msg = (
            f"{owner}'s table must hold one {column} in [0, 1] per prompt, got {problem}; "
            "evaluate it anew"
        )
        raise DataError(msg)
    return rates


def _problem(rates: "pd.Series[float]") -> str | None:
    if rates.empty:
        return "no rows"
    if not rates.index.is_unique:
        return f"{int(rates.index.duplicated().sum())} repeated prompts"
    num_wrong = int((~rates.between(0.0, 1.0)).sum())  # NaN is not between
    return f"{num_wrong} values that are not" if num_wrong else None
