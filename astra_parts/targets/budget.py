"""The budget of a target: calls, tokens and money, counted so that a kill loses nothing."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from astra_core.config import Count, NonNegative, Positive, Section


class Prices(Section):
    """Prices of a million tokens, in the currency of ``budget.money``."""

    input: NonNegative = 0.0
    output: NonNegative = 0.0

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The cost of these tokens."""
        return (self.input * tokens_in + self.output * tokens_out) / 1e6


class Budget(Section):
    """The most that may be spent under a name, over all runs in this folder; null is no limit."""

    name: str = Field("default", min_length=1, description="A new name counts from 0.")
    calls: Count | None = Field(None, description="Retries count; kept replies do not.")
    tokens: Count | None = Field(None, description="Tokens read and written, together.")
    money: Positive | None = Field(None, description="By the prices, which must be given.")
    evaluation_share: float = Field(
        0.25,
        ge=0.0,
        lt=1.0,
        description="Of each limit, kept for evaluations: rollouts leave it alone.",
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """The amounts spent under the name of a budget."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The present limits of a budget; infinite where there is none."""

    calls: float
    tokens: float
    money: float

    @classmethod
    def of(cls, budget: Budget, *, is_evaluation: bool) -> Self:
        """The limits for an evaluation, or for everything else."""
        share = 1.0 if is_evaluation else 1.0 - budget.evaluation_share
        # Rounded: 0.9 * 100 must be 90 calls.
        calls, tokens, money = (
            math.inf if each is None else round(each * share, 9)
            for each in (budget.calls, budget.tokens, budget.money)
        )
        return cls(calls, tokens, money)

    def reached(self, spent: Spent, prices: Prices, *, calls: int = 1) -> str:
        """The limit that leaves no room for this many calls, in words; empty if none does."""
        if spent.calls + calls > self.calls:
            return f"{spent.calls} of {self.calls:.0f} calls made and {calls} more to make"
        tokens = spent.tokens_in + spent.tokens_out
        if tokens >= self.tokens:
            return f"{tokens} of {self.tokens:.0f} tokens used"
        money = prices.cost(spent.tokens_in, spent.tokens_out)
        return f"{money:.4g} of {self.money:.4g} spent" if money >= self.money else ""


class Purse:
    """Keeps track of which limits hold at the moment."""

    def __init__(self, budget: Budget, prices: Prices) -> None:
        self.name = budget.name
        self.prices = prices
        self._budget = budget
        self._is_evaluation = False

    @property
    def limits(self) -> Limits:
        """The limits that hold now."""
        return Limits.of(self._budget, is_evaluation=self._is_evaluation)

    @property
    def reserve(self) -> str:
        """What of the budget is kept for evaluations now, in words; empty for nothing."""
        share = 0.0 if self._is_evaluation else self._budget.evaluation_share
        return f"; evaluation_share keeps {share:.0%} of it for evaluations" if share else ""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A scope in which the share of evaluations may be spent."""
        before, self._is_evaluation = self._is_evaluation, True
        try:
            yield
        finally:
            self._is_evaluation = before
