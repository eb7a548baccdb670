"""Bands that a candidate must keep to have a duel, against collapse, broken text and a large KL.

Each compares it with the untrained attacker: what that one has already, training has not broken.
All figures are of the registered evaluation; those of diversity are rarefied, so that a larger
evaluation does not make an attacker look less diverse.
"""

import math
from collections.abc import Iterator, Mapping
from operator import add, ge, le, mul
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.paired import Paired, paired
from tasks.records.evaluation import NONWORDS

if TYPE_CHECKING:
    import pandas as pd

BAND_ERROR = 0.025
"""One-sided error of the test for more invented words, as in a 95 % interval."""
_PERPLEXITY, _KL = "probe_perplexity", "kl_nats"
_DULL = (
    "the attacker repeats itself, strengthen novelty and diversity in the reward or the KL penalty"
)
_BROKEN = "success is bought with broken text, strengthen the likelihood reward or the KL penalty"
_FAR = "it left the reference, strengthen the KL penalty"


def broken_bands(
    report: Mapping[str, Any], table: "pd.DataFrame", rules: PromotionConfiguration
) -> tuple[str, ...]:
    """A sentence for each rule that the candidate breaks; a rule that is null cannot be broken.

    Args:
        report: The figures of the evaluation: ``attacker`` and ``baseline``, the untrained one.
        table: Its table of prompts.
        rules: The bands.

    Raises:
        DataError: A figure is missing or is not a number.
    """
    own, untrained = report["attacker"], report["baseline"]
    return (*_broken(own, untrained, rules), *_more_nonwords(table, rules))


def _broken(
    own: Mapping[str, Any], untrained: Mapping[str, Any], rules: PromotionConfiguration
) -> Iterator[str]:
    bands: list[tuple[str, float | None, Any, Any, str]] = [
        ("unique_probes_rarefied", rules.min_unique_probes_ratio, mul, ge, _DULL),
        ("distinct_2_rarefied", rules.min_distinct_2_ratio, mul, ge, _DULL),
        ("top_strategy_share", rules.max_top_strategy_share, max, le, _DULL),
        (_PERPLEXITY, rules.max_perplexity_ratio, mul, le, _BROKEN),
        (_KL, rules.max_kl_nats, add, le, _FAR),
    ]
    for name, rule, bound_of, keeps, way_out in bands:
        if rule is None or _is_unknown(name, own):
            continue
        value = figure(own, name, "candidate")
        before = _before(name, untrained)
        bound = bound_of(rule, before) if _is_comparable(name, own, untrained) else rule
        if not keeps(value, bound):
            word = "least" if keeps is ge else "most"
            yield (
                f"{name} must be at {word} {bound:.3f}, got {value:.3f} (untrained {before:.3f}); "
                f"{way_out}"
            )


def unmeasured_bands(report: Mapping[str, Any], rules: PromotionConfiguration) -> tuple[str, ...]:
    """A sentence for each rule that is neither kept nor broken, as its figure is not known."""
    needs = {
        _PERPLEXITY: (rules.max_perplexity_ratio, "neither target nor reference gives"),
        _KL: (rules.max_kl_nats, "the reference gives no"),
    }
    return tuple(
        f"{name} was not measured: {why} log-probabilities"
        for name, (rule, why) in needs.items()
        if rule is not None and _is_unknown(name, report["attacker"])
    )


def _is_unknown(name: str, own: Mapping[str, Any]) -> bool:
    if name == "top_strategy_share":
        # Without a hit there is no strategy, nor any gain.
        return not own.get("num_hits")
    return name in {_PERPLEXITY, _KL} and own.get(name) is None


def _before(name: str, untrained: Mapping[str, Any]) -> float:
    """The untrained attacker's figure; the share of a strategy is 0 where it has no hit."""
    if name == "top_strategy_share" and _is_unknown(name, untrained):
        return 0.0
    return figure(untrained, name, "untrained attacker")


def _is_comparable(name: str, own: Mapping[str, Any], untrained: Mapping[str, Any]) -> bool:
    """False where the untrained attacker has too few hits: one strategy may hold most by chance."""
    size = "num_hits_compared"
    return name != "top_strategy_share" or untrained.get(size) == own.get(size)


def _more_nonwords(table: "pd.DataFrame", rules: PromotionConfiguration) -> Iterator[str]:
    if rules.max_nonword_gain is None:
        return
    if NONWORDS not in table.columns:
        msg = f"the table of prompts must have a column {NONWORDS}, got none; evaluate it again"
        raise DataError(msg)
    own, before = (
        table[table["role"] == role].set_index("prompt_id")[NONWORDS].astype(float)
        for role in ("attacker", "baseline")
    )
    found: Paired = paired((own - before).dropna().tolist())
    p_value = found.p_value(rules.max_nonword_gain)
    if p_value <= BAND_ERROR:
        yield (
            f"{NONWORDS} must be at most {rules.max_nonword_gain:.3f} above the untrained "
            f"attacker's, got {own.mean():.3f} (untrained {before.mean():.3f}, p {p_value:.2g}); "
            f"{_BROKEN}"
        )


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
