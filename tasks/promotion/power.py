"""How large a gain a duel sees on how many prompts, and what a set of prompts allows.

The power of the paired t-test by the normal distribution. Each of two attackers succeeds at half of
its rollouts, where outcomes vary most, so it is the least power: outcomes near 0 or 1 give more.
``python -m benchmarks gate`` simulates the same with the gate itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from astra_core.config import EvaluationConfiguration
from tasks.params.prompts import TEST_SHARES, PromptsConfiguration
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.spending import level_of

GAIN, POWER = 0.1, 0.8
"""The gain that a duel is planned for, and the power at it."""
_NORMAL = NormalDist()


class ExamRules(Protocol):
    """The sections that decide who meets whom on which prompts."""

    @property
    def prompts(self) -> PromptsConfiguration:
        """Where prompts come from, and how they are split."""

    @property
    def evaluation(self) -> EvaluationConfiguration:
        """The first duel."""

    @property
    def promotion(self) -> PromotionConfiguration:
        """The following duels."""


@dataclass(frozen=True, slots=True)
class Exam:
    """The prompts of duels, and the one-sided errors at which they are decided."""

    params: ExamRules
    num_test: int

    @property
    def first(self) -> int:
        """Prompts of the first duel, against the untrained attacker."""
        return min(self.params.evaluation.num_prompts, self.num_test)

    @property
    def left(self) -> int:
        """Test prompts that the evaluation leaves for the following duels."""
        return self.num_test - self.first

    @property
    def holds_back(self) -> bool:
        """Whether the following duels have no other prompts than these."""
        return self.params.prompts.source != "builtin" and self.params.promotion.fresh_path is None

    @property
    def following(self) -> int:
        """Prompts of a duel with a champion."""
        wanted = self.params.promotion.num_prompts
        return min(wanted, self.left) if self.holds_back else wanted

    def power(self, num_prompts: int, *, is_first: bool) -> float:
        """The probability that a duel on so many prompts sees ``GAIN``."""
        error = math.sqrt(self._variance / max(num_prompts, 1))
        return _NORMAL.cdf(GAIN / error - self._quantile(is_first=is_first))

    def num_needed(self, *, is_first: bool) -> int:
        """The prompts with which a duel sees ``GAIN`` with probability ``POWER``."""
        reach = self._quantile(is_first=is_first) + _NORMAL.inv_cdf(POWER)
        return math.ceil(self._variance * (reach / GAIN) ** 2)

    def lines(self) -> Iterator[str]:
        """The plan for a person: both kinds of duels, and what would give 80 % at +10 points."""
        rules = self.params.promotion
        yield f"first duel: {self._sentence(self.first, is_first=True)}"
        if self.holds_back and self.left < rules.min_prompts:
            yield f"following duels: none, {self.left} test prompts are left"
        else:
            apart = f", {self.left // self.following} without a prompt twice"
            many = apart if self.holds_back else ""
            yield f"following duels: {self._sentence(self.following, is_first=False)}{many}"
        wanted = (self.num_needed(is_first=True), self.num_needed(is_first=False))
        have = (self.first, self.following)
        if any(own < least for own, least in zip(have, wanted, strict=True)):
            yield self._advice(*wanted)

    def _sentence(self, num_prompts: int, *, is_first: bool) -> str:
        found = self.power(num_prompts, is_first=is_first)
        return f"{num_prompts} prompts, power {found:.0%} at a gain of 10 points"

    def _advice(self, first: int, following: int) -> str:
        told = f"evaluation.num_prompts {first} and promotion.num_prompts {following}"
        total = first + following
        if not self.holds_back or total <= self.num_test:
            return f"80 % at 10 points: {told}"
        fraction = self.params.prompts.test_fraction or TEST_SHARES[-1]
        return (
            f"80 % at 10 points: {told}, of {total} test prompts: {total / fraction:,.0f} valid "
            f"prompts at prompts.test_fraction {fraction:g}; of {self.num_test} test prompts, "
            f"evaluation.num_prompts {max(1, self.num_test * first // total)} is the fair share"
        )

    @property
    def _variance(self) -> float:
        """Of one prompt's difference of two rates."""
        return 0.5 / self.params.evaluation.num_rollouts

    def _quantile(self, *, is_first: bool) -> float:
        # With a champion each of the two ways to win has half of the error.
        level = level_of(1, self.params.promotion)
        return _NORMAL.inv_cdf(1.0 - (level if is_first else level / 2))
