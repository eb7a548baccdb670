"""How much of the stated error a duel may spend, so that a month of nightly duels keeps it.

Each duel has prompts and random numbers that no earlier one used, and is decided at the share of
``promotion.family_error`` that the linear spending function gives it over ``promotion.horizon``
duels. By the union bound the probability that any of them promotes a candidate that is no better
is at most the sum of these shares, however the candidates depend on each other. After a horizon the
next one begins.

Source:
    Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983):
    the spending function alpha * t.
"""

from tasks.params.schema import PromotionConfiguration


def place_of(duel: int, rules: PromotionConfiguration) -> int:
    """The place of a duel within its horizon, from 1."""
    return (duel - 1) % rules.horizon + 1


def level_of(duel: int, rules: PromotionConfiguration) -> float:
    """The one-sided error that the duel may spend."""
    place = place_of(duel, rules)
    return _error_spent(place, rules) - _error_spent(place - 1, rules)


def _error_spent(place: int, rules: PromotionConfiguration) -> float:
    """The error spent by the first ``place`` duels."""
    return rules.family_error * place / rules.horizon
