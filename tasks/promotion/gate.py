"""The statistics that decide whether a candidate is better than what it would replace.

Both are examined on the same prompts, so each prompt gives one difference, and whole prompts are
resampled: the attempts on one prompt stay together. This is arithmetic only; no store, no files.
``docs/statistics.md`` has the rules and how often they are wrong.
"""

from dataclasses import dataclass

import pandas as pd

from astra_core.errors import DataError
from astra_core.metrics.statistics import paired_gain
from tasks.figures.prompt_rows import ASKED, STRATEGIES
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.bands import GateRule
from tasks.promotion.paired import Paired, t_test
from tasks.promotion.richness import Richness, richness_of

LOSS_ERROR = 0.025
"""One-sided error of the non-inferiority test, as in a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much more often the candidate succeeds, compared prompt by prompt.

    ``richness``: strategies of both, by block of prompts; None where hits are too few.
    """

    gain: float
    low: float
    high: float
    candidate: float
    champion: float
    num_prompts: int
    confidence: float
    test: Paired
    richness: Richness | None = None

    def describe(self) -> str:
        """Gain and interval in one clause."""
        return (
            f"gain {100 * self.gain:+.1f} points ({self.confidence:.0%} interval "
            f"{100 * self.low:+.1f} to {100 * self.high:+.1f}, {self.num_prompts} prompts)"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's verdict on a candidate.

    ``reasons``: the rules that are broken, or one sentence that says why it passed.
    """

    passed: bool
    reasons: tuple[str, ...]
    rules: tuple[GateRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Stake:
    """The error that a decision may spend.

    ``against_champion``: whether a far more diverse candidate may win too. It may not against the
    untrained attacker, whose probes are as diverse as can be.
    """

    level: float
    place: int
    horizon: int
    against_champion: bool

    def describe(self) -> str:
        """Which duel of the horizon it is, in one clause."""
        return f"duel {self.place} of {self.horizon}"


def compare(
    candidate: pd.DataFrame,
    champion: pd.DataFrame,
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
    column: str = "success_rate",
) -> Comparison:
    """The candidate's gain over the champion, paired by prompt.

    ``candidate``: one row per prompt: ``prompt_id``, the column and, to compare diversity, the
    strategies of its hits.

    Raises DataError if a table is empty, repeats a prompt, has a value that is not in [0, 1], or
    the two do not hold the same prompts.
    """
    ours = _rates(candidate, column, "candidate")
    theirs = _rates(champion, column, "champion")
    if set(ours.index) != set(theirs.index):
        shared = len(set(ours.index) & set(theirs.index))
        msg = (
            f"candidate and champion must be examined on the same prompts, got {len(ours)} and "
            f"{len(theirs)} prompts of which {shared} are shared; evaluate both again"
        )
        raise DataError(msg)
    ours = ours.sort_index()
    # A prompt for which one attacker has no judged reply says nothing about the two.
    gains = (ours - theirs.reindex(ours.index)).dropna()
    if gains.empty:
        msg = "candidate and champion must share a judged prompt, got none; see system.scorer"
        raise DataError(msg)
    interval = paired_gain(
        list(gains.index),
        gains.tolist(),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    return Comparison(
        gain=interval.value,
        low=interval.low,
        high=interval.high,
        candidate=float(ours.mean()),
        champion=float(theirs.mean()),
        num_prompts=len(gains),
        confidence=confidence,
        test=t_test(gains.tolist()),
        richness=_richness(candidate, champion, list(ours.index)),
    )


def decide(comparison: Comparison, *, rules: PromotionConfiguration, stake: Stake) -> Verdict:
    """Whether the candidate may become champion.

    It wins by success, or by being no worse and far more diverse. Where both ways are open, each
    test has half of the error.
    """
    level = stake.level / 2 if stake.against_champion else stake.level
    p_value = comparison.test.p_value(rules.min_lift)
    told = f"{comparison.describe()}, p {p_value:.2g} of at most {level:.2g} in {stake.describe()}"
    failed, tried = [], [_success(comparison, rules, stake, p_value=p_value, level=level)]
    if comparison.num_prompts < rules.min_prompts:
        few = (str(comparison.num_prompts), "", f"at least {rules.min_prompts}")
        tried.append(GateRule("prompts examined", *few, held=False))
        failed.append(
            f"prompts examined must be at least {rules.min_prompts}, got "
            f"{comparison.num_prompts}; raise evaluation.num_prompts"
        )
    wins = f"{told}: above {_points(rules.min_lift)}" if p_value <= level else None
    if not wins and stake.against_champion:
        wins = _wins_by_diversity(comparison, rules, level)
        found = comparison.richness.describe() if comparison.richness else "too few hits"
        loss = _points(rules.max_loss)
        bound = f"{rules.min_diversity_gain:.0%} more, success at most {loss} below"
        tried.append(GateRule("or else strategies", found, "", bound, held=bool(wins)))
    if not wins:
        failed.append(
            f"gain must lie above {_points(rules.min_lift)} beyond chance, got {told}; train "
            "longer or examine more prompts"
        )
    return Verdict(not failed, tuple(failed) if failed else (str(wins),), tuple(tried))


def _points(share: float) -> str:
    return f"{100 * share:g} points"


def _success(
    found: Comparison, rules: PromotionConfiguration, stake: Stake, *, p_value: float, level: float
) -> GateRule:
    """The rule of the gain, as the report has it."""
    return GateRule(
        f"attack success, {stake.describe()}",
        f"{found.candidate:.1%}, p {p_value:.2g}",
        f"{found.champion:.1%}{' (champion)' * stake.against_champion}",
        f"more than {_points(rules.min_lift)} above, p at most {level:.2g}",
        p_value <= level,
    )


def _wins_by_diversity(
    comparison: Comparison, rules: PromotionConfiguration, level: float
) -> str | None:
    """Why it wins although it does not succeed more often; None if it does not win."""
    found = comparison.richness
    if found is None or comparison.test.p_value(-rules.max_loss) > LOSS_ERROR:
        return None
    p_value = found.test(1.0 + rules.min_diversity_gain).p_value()
    if p_value > level:
        return None
    return (
        f"{comparison.describe()} lies above -{_points(rules.max_loss)}, and {found.describe()}, "
        f"p {p_value:.2g} of at most {level:.2g}"
    )


def _richness(candidate: pd.DataFrame, champion: pd.DataFrame, order: list[str]) -> Richness | None:
    tables = (candidate, champion)
    if not all(STRATEGIES in table.columns for table in tables):
        return None
    # Strategies by questions and by shared words do not compare.
    if len({ASKED in table.columns and bool(table[ASKED].any()) for table in tables}) > 1:
        return None
    own, other = (
        table.set_index("prompt_id")[STRATEGIES].reindex(order).tolist() for table in tables
    )
    return richness_of(own, other)


def _rates(table: pd.DataFrame, column: str, owner: str) -> "pd.Series[float]":
    """The column's values by prompt id, checked."""
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
            "evaluate it again"
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
