"""Bands that a candidate must keep to have a duel, against collapse, broken text and a large KL.

All figures are of the registered evaluation; those of diversity are rarefied, so that a larger
evaluation does not make an attacker look less diverse.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration

_DULL = (
    "the attacker repeats itself, strengthen novelty and diversity in the reward or the KL penalty"
)
_BROKEN = "success is bought with broken text, strengthen the likelihood reward or the KL penalty"


def broken_bands(
    candidate: Mapping[str, Any], untrained: Mapping[str, Any], rules: PromotionConfiguration
) -> tuple[str, ...]:
    """A sentence for each rule that the candidate breaks; a rule that is null cannot be broken.

    Args:
        candidate: The candidate's figures of the evaluation.
        untrained: The untrained attacker's.
        rules: The bands.

    Raises:
        DataError: A figure is missing or is not a number.
    """
    return tuple(_broken(candidate, untrained, rules))


def _broken(
    candidate: Mapping[str, Any], untrained: Mapping[str, Any], rules: PromotionConfiguration
) -> Iterator[str]:
    floors = {
        "unique_probes_rarefied": rules.min_unique_probes,
        "distinct_2_rarefied": rules.min_distinct_2_ratio
        * figure(untrained, "distinct_2_rarefied", "untrained attacker"),
    }
    for name, floor in floors.items():
        value = figure(candidate, name, "candidate")
        if value < floor:
            yield f"{name} must be at least {floor:.3f}, got {value:.3f}; {_DULL}"
    ceilings = {
        "top_strategy_share": (rules.max_top_strategy_share, _DULL),
        "nonword_probe_rate": (rules.max_nonword_probe_rate, _BROKEN),
        "probe_perplexity": (_perplexity_ceiling(untrained, rules), _BROKEN),
        "kl_nats": (rules.max_kl_nats, "it left the reference, strengthen the KL penalty"),
    }
    # Without a hit there is no strategy, nor any gain.
    if not candidate.get("num_hits"):
        del ceilings["top_strategy_share"]
    for name, (ceiling, way_out) in ceilings.items():
        if ceiling is None:
            continue
        value = figure(candidate, name, "candidate")
        if value > ceiling:
            yield f"{name} must be at most {ceiling:.3f}, got {value:.3f}; {way_out}"


def _perplexity_ceiling(
    untrained: Mapping[str, Any], rules: PromotionConfiguration
) -> float | None:
    if rules.max_perplexity_ratio is None:
        return None
    return rules.max_perplexity_ratio * figure(untrained, "probe_perplexity", "untrained attacker")


def figure(figures: Mapping[str, Any], name: str, owner: str) -> float:
    """One figure as a number; an interval gives its ``value``.

    Raises:
        DataError: It is missing or is not a finite number.
    """
    value = figures.get(name)
    if isinstance(value, Mapping):
        value = value.get("value")
    if not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"{name} of the {owner} must be a finite number, got {value!r}; evaluate it again"
        raise DataError(msg)
    return float(value)
