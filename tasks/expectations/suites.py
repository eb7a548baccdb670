"""The suites: what is expected of prompts one by one, of the set of them, and of rollouts.

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

# Above this share of shortened contexts, max_context_tokens is worth a look.
_MAX_TRUNCATED_FRACTION = 0.1
_MAX_UNJUDGED_FRACTION = 0.1


def prompt_row_suite(validation: ValidationConfiguration) -> "ExpectationSuite":
    """What each prompt must be; who is not, is rejected with the names of the checks.

    Reads ``prompt_facts`` and ``prompt_score``, which is null where nobody asked the scorer.
    """
    from great_expectations.expectations import ExpectColumnValuesToBeBetween

    from tasks.expectations.custom import ExpectTextToHoldNo

    limits: dict[str, tuple[str, dict[str, Any]]] = {
        "min_characters": ("num_characters", {"min_value": validation.min_characters}),
        "max_characters": ("num_characters", {"max_value": validation.max_characters}),
        "max_words": ("num_words", {"max_value": validation.max_words}),
        "non_ascii": ("non_ascii_fraction", {"max_value": validation.max_non_ascii_fraction}),
        "prompt_score": (
            "prompt_score",
            {"max_value": validation.max_prompt_score, "strict_max": True},
        ),
    }
    findings = BROKEN_TEXT + (PERSONAL_DATA if validation.reject_personal_data else ())
    within = [
        _named(ExpectColumnValuesToBeBetween, check, "row", column=column, **bounds)
        for check, (column, bounds) in limits.items()
    ]
    clean = [
        _named(ExpectTextToHoldNo, finding, "row", column="text", finding=finding)
        for finding in findings
    ]
    return _suite("prompts one by one", [*within, *clean])


def prompt_suite(validation: ValidationConfiguration) -> "ExpectationSuite":
    """What the set of prompts must be, rejected rows and all.

    Reads ``prompt_facts`` and ``rejected``, 1.0 for a row that the row suite rejected.
    """
    from great_expectations import expectations as gx
    from great_expectations.expectations.row_conditions import Column

    from tasks.expectations.custom import ExpectNoLeakage

    columns = ("prompt_id", "text", "split", "family")
    filled = [
        _named(gx.ExpectColumnValuesToNotBeNull, f"{name}_present", "critical", column=name)
        for name in columns
    ]
    whole = [
        _holds("id_matches_text", "id_matches"),
        _named(gx.ExpectColumnValuesToBeUnique, "id_unique", "critical", column="prompt_id"),
        _named(
            gx.ExpectColumnValuesToBeBetween,
            "text_not_empty",
            "critical",
            column="num_characters",
            min_value=1,
        ),
        _named(
            gx.ExpectColumnValuesToBeInSet,
            "split_known",
            "critical",
            column="split",
            value_set=list(SPLITS),
        ),
        _named(ExpectNoLeakage, "id_leakage", "critical", key="prompt_id"),
        _named(ExpectNoLeakage, "family_leakage", "critical", key="family"),
        _named(
            gx.ExpectColumnMeanToBeBetween,
            "rejected_fraction",
            "critical",
            column="rejected",
            max_value=validation.max_rejected_fraction,
        ),
        _named(
            gx.ExpectColumnValuesToNotBeInSet,
            "licence_known",
            "warning",
            column="licence",
            value_set=["unknown", ""],
        ),
    ]
    enough = [
        _named(
            gx.ExpectTableRowCountToBeBetween,
            f"{split}_rows",
            "critical",
            min_value=validation.min_prompts,
            row_condition=(Column("split") == split) & (Column("rejected") == 0.0),
        )
        for split in SPLITS
    ]
    return _suite("prompts", [*filled, *whole, *enough])


def rollout_suite(
    *, max_failed_fraction: float, vocabulary_size: int | None = None
) -> "ExpectationSuite":
    """What the rollouts must be before anything learns from them; reads ``rollout_facts``.

    Args:
        max_failed_fraction: Share of turns that may have failed.
        vocabulary_size: Of the attacker; None leaves the upper end of token ids unchecked.
    """
    from great_expectations import expectations as gx

    limits: dict[str, tuple[Any, dict[str, Any]]] = {
        "rows_present": (gx.ExpectTableRowCountToBeBetween, {"min_value": 1}),
        "row_id_present": (gx.ExpectColumnValuesToNotBeNull, {"column": "row_id"}),
        "row_id_unique": (gx.ExpectColumnValuesToBeUnique, {"column": "row_id"}),
        "failed_fraction": (
            gx.ExpectColumnMeanToBeBetween,
            {"column": "failed", "max_value": max_failed_fraction},
        ),
    }
    of_all = [_named(kind, check, "critical", **rest) for check, (kind, rest) in limits.items()]
    truncated = _named(
        gx.ExpectColumnMeanToBeBetween,
        "truncated_fraction",
        "warning",
        column="truncated",
        max_value=_MAX_TRUNCATED_FRACTION,
    )
    unjudged = _named(
        gx.ExpectColumnMeanToBeBetween,
        "unjudged_fraction",
        "warning",
        column="unjudged",
        max_value=_MAX_UNJUDGED_FRACTION,
    )
    tree = [_holds(name, name) for name in ("depth_matches", "parent_matches", "parent_known")]
    of_ok = [*_token_checks(vocabulary_size), *_score_checks()]
    return _suite("rollouts", [*of_all, *tree, *of_ok, truncated, unjudged])


def _token_checks(vocabulary_size: int | None) -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    last = None if vocabulary_size is None else vocabulary_size - 1
    return [
        _of_ok(between, "probe_not_empty", column="num_probe_ids", min_value=1),
        _of_ok(
            equal, "logprobs_per_token", column_A="num_probe_ids", column_B="num_probe_logprobs"
        ),
        _of_ok(equal, "mask_per_token", column_A="num_probe_ids", column_B="num_probe_mask"),
        _of_ok_holds("reference_per_token", "reference_fits"),
        _of_ok_holds("logprobs_valid", "logprobs_valid"),
        _of_ok_holds("target_logprobs_valid", "target_logprobs_valid"),
        _of_ok(between, "token_ids_from_zero", column="min_probe_id", min_value=0),
        *(
            [_of_ok(between, "token_ids_known", column="max_probe_id", max_value=last)]
            if last is not None
            else []
        ),
    ]


def _score_checks() -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    present = gx.ExpectColumnValuesToNotBeNull
    return [
        _of_ok(
            equal, "score_per_response", column_A="num_responses", column_B="num_response_scores"
        ),
        _of_ok_holds("response_scores_valid", "scores_valid"),
        _of_ok_holds("score_is_mean", "score_is_mean"),
        _of_judged(present, "score_present", column="score"),
        _of_ok(between, "score_range", column="score", min_value=0.0, max_value=1.0),
        _of_ok(present, "probe_score_present", column="probe_score"),
        _of_ok(between, "probe_score_range", column="probe_score", min_value=0.0, max_value=1.0),
        _of_ok_holds("reward_finite", "reward_finite"),
        # One value for everything is a scorer that does not look.
        _of_ok(
            gx.ExpectColumnUniqueValueCountToBeBetween, "scores_differ", column="score", min_value=2
        ),
        _of_ok(
            gx.ExpectColumnMaxToBeBetween,
            "some_response_has_text",
            column="response_characters",
            min_value=1,
        ),
    ]


def _of_ok(kind: Any, check: str, **rest: Any) -> Any:
    """A critical expectation of the turns that did not fail."""
    from great_expectations.expectations.row_conditions import Column

    return _named(kind, check, "critical", row_condition=Column("failed") == 0.0, **rest)


def _of_judged(kind: Any, check: str, **rest: Any) -> Any:
    """A critical expectation of the turns with a judged reply."""
    from great_expectations.expectations.row_conditions import Column

    is_judged = (Column("failed") == 0.0) & (Column("unjudged") == 0.0)
    return _named(kind, check, "critical", row_condition=is_judged, **rest)


def _of_ok_holds(check: str, column: str) -> Any:
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return _of_ok(ExpectColumnValuesToBeInSet, check, column=column, value_set=[True])


def _holds(check: str, column: str) -> Any:
    """A critical expectation that a fact is true of every row."""
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return _named(ExpectColumnValuesToBeInSet, check, "critical", column=column, value_set=[True])


def _named(kind: Any, check: str, level: Level, **rest: Any) -> Any:
    """An expectation under the name and level it is reported by."""
    severity = "critical" if level == "critical" else "warning"
    return kind(severity=severity, meta={"check": check, "level": level}, **rest)


def _suite(name: str, expectations: Iterable[Any]) -> "ExpectationSuite":
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=name, expectations=list(expectations))
