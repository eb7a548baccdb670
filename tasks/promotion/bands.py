"""Bands that a candidate must keep to have a duel, against collapse, broken text and a large KL.

Each compares it with the untrained attacker: what that one has already, training has not broken.
All figures are of the registered evaluation; those of diversity are rarefied, so that a larger
evaluation does not make an attacker look less diverse.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, ge, le, mul
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_parts.metrics.detection import proportion
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.paired import Paired, t_test
from tasks.records.evaluation import NONWORDS

if TYPE_CHECKING:
    import pandas as pd

BAND_ERROR = 0.025
"""One-sided error of the tests for more invented words and for more hits of one strategy, as in a
95 % interval."""
_PERPLEXITY, _KL, _TOP = "probe_perplexity", "kl_nats", "top_strategy_share"
_DULL = (
    "the attacker repeats itself, strengthen novelty and diversity in the reward or the KL penalty"
)
_ONE_WAY = (
    f"{_DULL}, or set promotion.max_top_strategy_share to null where the target has no other "
    "weakness"
)
_BROKEN = "success is bought with broken text, strengthen the likelihood reward or the KL penalty"
_FAR = "it left the reference, strengthen the KL penalty"


@dataclass(frozen=True, slots=True)
class GateRule:
    """A rule of the gate as it stands in the report.

    Attributes:
        against: The untrained attacker's; in a duel the champion's.
        held: None where the figure was not measured.
    """

    name: str
    value: str
    against: str
    bound: str
    held: bool | None
    way_out: str = ""

    def broken(self) -> str:
        """The rule that does not hold, in a sentence."""
        return (
            f"{self.name} must be {self.bound}, got {self.value} (untrained {self.against}); "
            f"{self.way_out}"
        )


def bands(
    report: Mapping[str, Any], table: "pd.DataFrame", rules: PromotionConfiguration
) -> tuple[GateRule, ...]:
    """Each band with the candidate's figure; one that is null is left out.

    ``report``: the figures of the evaluation: ``attacker`` and ``baseline``, the untrained one.

    Raises DataError if a figure is missing or is not a number.
    """
    own, untrained = report["attacker"], report["baseline"]
    return (*_figures(own, untrained, rules), *_more_nonwords(table, rules))


def _figures(
    own: Mapping[str, Any], untrained: Mapping[str, Any], rules: PromotionConfiguration
) -> Iterator[GateRule]:
    found: list[tuple[str, float | None, Any, Any, str]] = [
        ("unique_probes_rarefied", rules.min_unique_probes_ratio, mul, ge, _DULL),
        ("distinct_2_rarefied", rules.min_distinct_2_ratio, mul, ge, _DULL),
        (_TOP, rules.max_top_strategy_share, _alone, le, _ONE_WAY),
        (_PERPLEXITY, rules.max_perplexity_ratio, mul, le, _BROKEN),
        (_KL, rules.max_kl_nats, add, le, _FAR),
    ]
    for name, rule, bound_of, keeps, way_out in found:
        if rule is None:
            continue
        if _is_unknown(name, own):
            yield GateRule(name, "not measured", "", "", held=None)
            continue
        value = figure(own, name, "candidate")
        before = _before(name, untrained)
        bound = bound_of(rule, before)
        held = keeps(value, bound)
        form = ".2f" if name in {_PERPLEXITY, _KL} else ".1%"
        told = f"at {'least' if keeps is ge else 'most'} {bound:{form}}"
        if name == _TOP and not held and _has_one_way(own, untrained, bound):
            held = True
            told = f"{told}, or above it before training too and not shown to be larger"
        # Without a zero's sign, which rounding leaves.
        own_value, other = (f"{round(number, 3) + 0.0:{form}}" for number in (value, before))
        yield GateRule(name, own_value, other, told, held, way_out)


def unmeasured_bands(found: Sequence[GateRule]) -> tuple[str, ...]:
    """A sentence for each rule that is neither kept nor broken, as its figure is not known."""
    needs = {_PERPLEXITY: "neither target nor reference gives", _KL: "the reference gives no"}
    return tuple(
        f"{rule.name} was not measured: {needs[rule.name]} log-probabilities"
        for rule in found
        if rule.held is None and rule.name in needs
    )


def _is_unknown(name: str, own: Mapping[str, Any]) -> bool:
    if name == _TOP:
        # Without a hit there is no strategy, nor any gain.
        return not own.get("num_hits")
    return name in {_PERPLEXITY, _KL} and own.get(name) is None


def _before(name: str, untrained: Mapping[str, Any]) -> float:
    """The untrained attacker's figure; the share of a strategy is 0 where it has no hit."""
    if name == _TOP and _is_unknown(name, untrained):
        return 0.0
    return figure(untrained, name, "untrained attacker")


def _alone(rule: float, _: float) -> float:
    return rule


def _has_one_way(own: Mapping[str, Any], untrained: Mapping[str, Any], bound: float) -> bool:
    """Whether the untrained attacker's hits were beyond chance above the bound too.

    The candidate's share must also not be shown to be above, by Fisher's exact test. Shares of
    strategies by questions and by shared words do not compare.
    """
    from scipy.stats import fisher_exact

    hits = [int(each.get("num_hits") or 0) for each in (own, untrained)]
    shares = [figure(own, _TOP, "candidate"), _before(_TOP, untrained)]
    if len({bool(each.get("strategy_hits_asked")) for each in (own, untrained)}) > 1:
        return False
    top = [round(share * count) for share, count in zip(shares, hits, strict=True)]
    if not hits[1] or proportion(top[1], hits[1], confidence=1 - 2 * BAND_ERROR).low <= bound:
        return False
    table = [[count, total - count] for count, total in zip(top, hits, strict=True)]
    return bool(fisher_exact(table, alternative="greater").pvalue > BAND_ERROR)


def _more_nonwords(table: "pd.DataFrame", rules: PromotionConfiguration) -> Iterator[GateRule]:
    if rules.max_nonword_gain is None:
        return
    if NONWORDS not in table.columns:
        msg = f"the table of prompts must have a column {NONWORDS}, got none; evaluate it again"
        raise DataError(msg)
    own, before = (
        table[table["role"] == role].set_index("prompt_id")[NONWORDS].astype(float)
        for role in ("attacker", "baseline")
    )
    found: Paired = t_test((own - before).dropna().tolist())
    p_value = found.p_value(rules.max_nonword_gain)
    yield GateRule(
        NONWORDS,
        f"{own.mean():.1%}",
        f"{before.mean():.1%}, p {p_value:.2g}",
        f"at most {100 * rules.max_nonword_gain:g} points above the untrained attacker's",
        p_value > BAND_ERROR,
        _BROKEN,
    )


def figure(figures: Mapping[str, Any], name: str, owner: str) -> float:
    """One figure as a number; an interval gives its ``value``.

    Raises DataError if it is missing or is not a finite number.
    """
    value = figures.get(name)
    if isinstance(value, Mapping):
        value = value.get("value")
    if not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"{name} of the {owner} must be a finite number, got {value!r}; evaluate it again"
        raise DataError(msg)
    return float(value)
