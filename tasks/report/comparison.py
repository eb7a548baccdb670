"""Two versions side by side: figures, differences paired by prompt, and different settings.

Differences are paired: both attackers met the same prompts, so each prompt gives one difference.
If the two examinations differ, nothing is subtracted, and the page says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from tasks.promotion.gate import Comparison, compare
from tasks.report.material import Material
from tasks.report.page import templates
from tasks.report.pictures import pictures_of_two

PAIRED = {
    "success_rate": "Attack success",
    "clean_success_rate": "Clean attack success",
    "first_turn_success_rate": "First-turn success",
    "attempt_success_rate": "Success of a reply",
    "score_mean": "Mean score",
}
# By name: what they are called, and how they are written.
_FIGURES = {
    "attack_success_rate": ("Attack success", ".1%"),
    "clean_attack_success_rate": ("Clean attack success", ".1%"),
    "score_mean": ("Mean score", ".1%"),
    "unique_probes": ("Unique probes", ".1%"),
    "distinct_2": ("Distinct-2", ".1%"),
    "unique_attacks": ("Unique attacks found", ",.0f"),
    "strategies_found": ("Strategies found", ",.0f"),
    "strategies_repeated": ("Strategies found in two trees or more", ",.0f"),
    "strategies": ("Strategies among as many hits", ".1f"),
    "probe_perplexity": ("Perplexity of probes", ".2f"),
    "kl_nats": ("KL, nats per probe", ".2f"),
    "reward_mean": ("Reward", ".3f"),
}
# Sections that an examination depends on, beside its prompts.
_EXAMINED = (
    "system.",
    "evaluation.",
    "reward.",
    "prompts.",
    "models.target.",
    "seed",
    "training_seed",
)
_NUM_RESAMPLES = 10_000
_SHORT = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One figure or setting of both versions."""

    label: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class RateDifference:
    """The second's rate minus the first's, paired by prompt."""

    label: str
    found: Comparison

    @property
    def spelled(self) -> str:
        """The difference with its interval, in percentage points."""
        gain, low, high = (100 * end for end in (self.found.gain, self.found.low, self.found.high))
        return f"{gain:+.1f} [{low:+.1f}, {high:+.1f}]"

    @property
    def p_value(self) -> float:
        """The two-sided p value, by Student's t over prompts."""
        above = self.found.test.p_value()
        return min(1.0, 2 * min(above, 1 - above))


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two versions.

    Attributes:
        first: The version that is subtracted.
        second: The version from which it is subtracted.
        obstacle: Why nothing is subtracted; empty if the two can be compared.
        differences: Differences paired by prompt; none where there is an obstacle.
        figures: Figures of both, as they were registered.
        settings: Keys of params.yaml that differ.
    """

    first: Material
    second: Material
    obstacle: str
    differences: tuple[RateDifference, ...]
    figures: tuple[Row, ...]
    settings: tuple[Row, ...]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "first": _identity(self.first),
            "second": _identity(self.second),
            "obstacle": self.obstacle,
            "differences": {
                each.label: {**asdict(each.found), "p_value": each.p_value}
                for each in self.differences
            },
            "figures": [asdict(row) for row in self.figures],
            "settings": [asdict(row) for row in self.settings],
        }


def side_by_side(first: Material, second: Material) -> SideBySide:
    """Both versions, with differences where the examinations allow them."""
    settings = tuple(_settings(first.params, second.params))
    obstacle = _obstacle(first, second, settings)
    differences: tuple[RateDifference, ...] = ()
    if not obstacle:
        try:
            differences = tuple(_differences(first, second))
        except DataError as error:
            obstacle = str(error)
    return SideBySide(first, second, obstacle, differences, tuple(_rows(first, second)), settings)


def verdict(found: SideBySide) -> str:
    """What the paired difference in success says, or why there is none."""
    if found.obstacle:
        return f"Not comparable: {found.obstacle}."
    success = next((each for each in found.differences if each.label == "Attack success"), None)
    if success is None:
        return "Neither has rates by prompt."
    first, second = found.first.name, found.second.name
    if success.found.low <= 0 <= success.found.high:
        said = f"{second} and {first} differ by no more than chance alone could explain"
    else:
        word = "more" if success.found.gain > 0 else "less"
        said = f"{second} succeeds {word} often than {first}"
    return (
        f"{said}: difference {success.spelled} percentage points, {success.found.confidence:.0%} "
        f"interval over {success.found.num_prompts} prompts, p {success.p_value:.2g}."
    )


def _obstacle(first: Material, second: Material, settings: tuple[Row, ...]) -> str:
    if first.examination == second.examination:
        return ""
    keys = " and ".join(own.examination[:_SHORT] for own in (first, second))
    named = [row.label for row in settings if row.label.startswith(_EXAMINED)]
    why = f" ({', '.join(named[:5])} differ)" if named else ""
    both = " ".join(own.lineage.summary.version for own in (first, second))
    return (
        f"they were examined differently, {keys}{why}; 'astra evaluate {both}' examines them alike"
    )


def _differences(first: Material, second: Material) -> Iterator[RateDifference]:
    told = first.params.get("evaluation", {})
    tables = [own.table.loc[own.table["role"] == "attacker"] for own in (second, first)]
    for column, label in PAIRED.items():
        if all(column in table.columns for table in tables):
            found = compare(
                *tables,
                confidence=first.evaluation.confidence,
                num_resamples=int(told.get("num_resamples", _NUM_RESAMPLES)),
                column=column,
            )
            yield RateDifference(label, found)


def _rows(first: Material, second: Material) -> Iterator[Row]:
    both = (first, second)
    for name, (label, form) in _FIGURES.items():
        own = [_text_of(each.evaluation.attacker.get(name), form) for each in both]
        if any(own):
            yield Row(label, *own)
    yield Row("Gain over the untrained", *(each.evaluation.lift.points() for each in both))
    refused = [each.evaluation.over_refusal for each in both]
    # The rate of other requests, or by another judge, is another figure.
    if len({(own.requests, own.judge) for own in refused if own}) == 1:
        told = ["" if own is None else own.rate.spelled(".1%") for own in refused]
        yield Row("Harmless requests refused", *told)
    yield Row("Updates", *(str(each.training.optimizer_steps) for each in both))
    yield Row("Decision", *(each.lineage.summary.decision or "none" for each in both))
    yield Row("Examination", *(each.examination[:_SHORT] for each in both))
    yield Row("Weights", *(each.lineage.checkpoint_digest[:_SHORT] for each in both))
    yield Row("Code", *(each.lineage.code.get("git.commit", "")[:_SHORT] for each in both))


def _text_of(figure: Interval | float | None, form: str) -> str:
    if figure is None:
        return ""
    return figure.spelled(form) if isinstance(figure, Interval) else f"{figure:{form}}"


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Row]:
    from tasks.tracking.values import flatten

    ours, theirs = dict(flatten(first)), dict(flatten(second))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            yield Row(key, ours.get(key, ""), theirs.get(key, ""))


def _identity(material: Material) -> dict[str, str]:
    summary = material.lineage.summary
    return {
        "version": summary.version,
        "run_id": summary.run_id,
        "examination": material.examination,
    }


def html_of_two(found: SideBySide) -> str:
    """The HTML page of two versions, like ``html_page`` for one."""
    page = templates().get_template("compare.html.j2")
    return page.render(**_of_two(found), charts=pictures_of_two(found.first, found.second))


def markdown_of_two(found: SideBySide) -> str:
    """The Markdown page of two versions, without pictures and findings."""
    return templates().get_template("compare.md.j2").render(**_of_two(found))


def _of_two(found: SideBySide) -> dict[str, Any]:
    title = f"{found.first.name} and {found.second.name}"
    return {"title": title, "found": found, "verdict": verdict(found)}
