"""The suites of prompts: what is expected of them one by one, and of the set of them.

Levels: ``critical`` stops the pipeline, ``row`` rejects the row that is not as expected and names
the check as the reason, ``warning`` is shown. A suite looks at the columns that ``facts`` makes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tasks.expectations.findings import BROKEN_TEXT, PERSONAL_DATA
from tasks.expectations.report import Level
from tasks.params.schema import ValidationConfiguration
from tasks.records.prompt_table import SPLITS

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite


# How sure the detector may be of another language.
_MAX_OTHER_LANGUAGE = 0.5


def prompt_row_suite(validation: ValidationConfiguration) -> "ExpectationSuite":
    """What each prompt must be; a prompt that fails is rejected with the names of the checks.

    The suite reads ``prompt_facts``, ``language_facts``, and ``prompt_score``, which is null where
    the scorer was not asked.
    """
    from great_expectations.expectations import ExpectColumnValuesToBeBetween

    from tasks.expectations.custom import ExpectTextToHoldNo

    limits: dict[str, tuple[str, dict[str, Any]]] = {
        "min_characters": ("num_characters", {"min_value": validation.min_characters}),
        "max_characters": ("num_characters", {"max_value": validation.max_characters}),
        "max_words": ("num_words", {"max_value": validation.max_words}),
    }
    if (most := validation.max_prompt_score) is not None:
        limits["prompt_score"] = ("prompt_score", {"max_value": most, "strict_max": True})
    other = {"max_value": validation.max_non_ascii_fraction}
    if validation.languages:
        limits["foreign_script"] = ("foreign_letters", other)
        limits["language"] = ("other_language", {"max_value": _MAX_OTHER_LANGUAGE})
    else:
        limits["non_ascii"] = ("non_ascii_fraction", other)
    findings = BROKEN_TEXT + (PERSONAL_DATA if validation.reject_personal_data else ())
    within = [
        expectation(ExpectColumnValuesToBeBetween, check, "row", column=column, **bounds)
        for check, (column, bounds) in limits.items()
    ]
    clean = [
        expectation(
            ExpectTextToHoldNo,
            finding,
            "row",
            column="text",
            finding=finding,
            description=f"text must hold no {finding.replace('_', ' ')}.",
        )
        for finding in findings
    ]
    return suite_of("prompts one by one", [*within, *clean])


def prompt_suite(validation: ValidationConfiguration) -> "ExpectationSuite":
    """What the set of prompts must be, rejected rows included.

    The suite reads ``prompt_facts`` and ``rejected``, 1.0 for a row that the row suite rejected.
    """
    from great_expectations import expectations as gx
    from great_expectations.expectations.row_conditions import Column

    from tasks.expectations.custom import ExpectNoLeakage

    filled, between = gx.ExpectColumnValuesToNotBeNull, gx.ExpectColumnValuesToBeBetween
    within, without = gx.ExpectColumnValuesToBeInSet, gx.ExpectColumnValuesToNotBeInSet
    mean, most_rejected = gx.ExpectColumnMeanToBeBetween, validation.max_rejected_fraction
    present = [
        expectation(filled, f"{name}_present", column=name)
        for name in ("prompt_id", "text", "split", "family")
    ]
    leaks = [
        expectation(
            ExpectNoLeakage,
            check,
            key=key,
            description=f"All rows of one {key} must be in one split.",
        )
        for check, key in (("id_leakage", "prompt_id"), ("family_leakage", "family"))
    ]
    of_the_whole = [
        holds("id_matches_text", "id_matches"),
        expectation(gx.ExpectColumnValuesToBeUnique, "id_unique", column="prompt_id"),
        expectation(between, "text_not_empty", column="num_characters", min_value=1),
        expectation(within, "split_known", column="split", value_set=list(SPLITS)),
        *leaks,
        expectation(mean, "rejected_fraction", column="rejected", max_value=most_rejected),
        expectation(
            without, "licence_known", "warning", column="licence", value_set=["unknown", ""]
        ),
    ]
    enough = [
        expectation(
            gx.ExpectTableRowCountToBeBetween,
            f"{split}_rows",
            min_value=validation.min_prompts,
            row_condition=(Column("split") == split) & (Column("rejected") == 0.0),
        )
        for split in SPLITS
    ]
    return suite_of("prompts", [*present, *of_the_whole, *enough])


def holds(check: str, column: str) -> Any:
    """A critical expectation that a fact is true of every row."""
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return expectation(ExpectColumnValuesToBeInSet, check, column=column, value_set=[True])


def expectation(kind: Any, check: str, level: Level = "critical", **rest: Any) -> Any:
    """An expectation under the name and level it is reported by."""
    severity = "critical" if level == "critical" else "warning"
    return kind(severity=severity, meta={"check": check, "level": level}, **rest)


def suite_of(name: str, expectations: Iterable[Any]) -> "ExpectationSuite":
    """A suite of these expectations, in their order."""
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=name, expectations=list(expectations))
