"""The suites: what is expected of prompts one by one, of the set of them, and of rollouts.

Levels: ``critical`` stops the pipeline, ``row`` rejects the row that is not as expected and names
the check as the reason, ``warning`` is shown. A suite looks at the columns that ``facts`` makes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tasks.expectations.expected import holds, named, of_judged, of_ok, of_ok_holds
from tasks.expectations.findings import BROKEN_TEXT, PERSONAL_DATA
from tasks.expectations.report import Level
from tasks.expectations.rollout_warnings import rollout_warnings
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
    limits |= _of_languages(validation)
    findings = BROKEN_TEXT + (PERSONAL_DATA if validation.reject_personal_data else ())
    within = [
        named(ExpectColumnValuesToBeBetween, check, "row", column=column, **bounds)
        for check, (column, bounds) in limits.items()
    ]
    clean = [
        named(
            ExpectTextToHoldNo,
            finding,
            "row",
            column="text",
            finding=finding,
            description=f"text must hold no {finding.replace('_', ' ')}.",
        )
        for finding in findings
    ]
    return _suite("prompts one by one", [*within, *clean])


def _of_languages(validation: ValidationConfiguration) -> dict[str, tuple[str, dict[str, Any]]]:
    """Limits on characters only, where the project names no languages."""
    most = {"max_value": validation.max_non_ascii_fraction}
    if not validation.languages:
        return {"non_ascii": ("non_ascii_fraction", most)}
    return {
        "foreign_script": ("foreign_letters", most),
        "language": ("other_language", {"max_value": _MAX_OTHER_LANGUAGE}),
    }


def prompt_suite(validation: ValidationConfiguration) -> "ExpectationSuite":
    """What the set of prompts must be, rejected rows included.

    The suite reads ``prompt_facts`` and ``rejected``, 1.0 for a row that the row suite rejected.
    """
    from great_expectations import expectations as gx
    from great_expectations.expectations.row_conditions import Column

    filled = [
        named(gx.ExpectColumnValuesToNotBeNull, f"{name}_present", "critical", column=name)
        for name in ("prompt_id", "text", "split", "family")
    ]
    enough = [
        named(
            gx.ExpectTableRowCountToBeBetween,
            f"{split}_rows",
            "critical",
            min_value=validation.min_prompts,
            row_condition=(Column("split") == split) & (Column("rejected") == 0.0),
        )
        for split in SPLITS
    ]
    return _suite("prompts", [*filled, *_of_the_whole(validation), *enough])


def _of_the_whole(validation: ValidationConfiguration) -> list[Any]:
    """What holds of ids, texts, splits, families and licences."""
    from great_expectations import expectations as gx

    from tasks.expectations.custom import ExpectNoLeakage

    leaks = [
        named(
            ExpectNoLeakage,
            check,
            "critical",
            key=key,
            description=f"All rows of one {key} must be in one split.",
        )
        for check, key in (("id_leakage", "prompt_id"), ("family_leakage", "family"))
    ]
    return [
        holds("id_matches_text", "id_matches"),
        named(gx.ExpectColumnValuesToBeUnique, "id_unique", "critical", column="prompt_id"),
        named(
            gx.ExpectColumnValuesToBeBetween,
            "text_not_empty",
            "critical",
            column="num_characters",
            min_value=1,
        ),
        named(
            gx.ExpectColumnValuesToBeInSet,
            "split_known",
            "critical",
            column="split",
            value_set=list(SPLITS),
        ),
        *leaks,
        named(
            gx.ExpectColumnMeanToBeBetween,
            "rejected_fraction",
            "critical",
            column="rejected",
            max_value=validation.max_rejected_fraction,
        ),
        named(
            gx.ExpectColumnValuesToNotBeInSet,
            "licence_known",
            "warning",
            column="licence",
            value_set=["unknown", ""],
        ),
    ]


def rollout_suite(
    *, max_failed_fraction: float, vocabulary_size: int | None = None, are_verdicts: bool = False
) -> "ExpectationSuite":
    """What the rollouts must be before anything learns from them; reads ``rollout_facts``.

    Args:
        vocabulary_size: The attacker's; None leaves the upper end of token ids unchecked.
        are_verdicts: Every score is 0 or 1. Equal scores can then mean a target that never, or
            always, offends, rather than a scorer that ignores the text.
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
    of_all = [named(kind, check, "critical", **rest) for check, (kind, rest) in limits.items()]
    tree = [holds(name, name) for name in ("depth_matches", "parent_matches", "parent_known")]
    of_ok = [
        *_token_checks(vocabulary_size),
        *_score_checks("warning" if are_verdicts else "critical"),
    ]
    return _suite("rollouts", [*of_all, *tree, *of_ok, *rollout_warnings()])


def _token_checks(vocabulary_size: int | None) -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    last = None if vocabulary_size is None else vocabulary_size - 1
    return [
        of_ok(between, "probe_not_empty", column="num_probe_ids", min_value=1),
        of_ok(equal, "logprobs_per_token", column_A="num_probe_ids", column_B="num_probe_logprobs"),
        of_ok(equal, "mask_per_token", column_A="num_probe_ids", column_B="num_probe_mask"),
        of_ok_holds("reference_per_token", "reference_fits"),
        of_ok_holds("logprobs_valid", "logprobs_valid"),
        of_ok_holds("target_logprobs_valid", "target_logprobs_valid"),
        of_ok(between, "token_ids_from_zero", column="min_probe_id", min_value=0),
        *(
            [of_ok(between, "token_ids_known", column="max_probe_id", max_value=last)]
            if last is not None
            else []
        ),
    ]


def _score_checks(level_of_equal: Level) -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    present = gx.ExpectColumnValuesToNotBeNull
    return [
        of_ok(
            equal, "score_per_response", column_A="num_responses", column_B="num_response_scores"
        ),
        of_ok_holds("response_scores_valid", "scores_valid"),
        of_ok_holds("score_is_mean", "score_is_mean"),
        of_judged(present, "score_present", column="score"),
        of_ok(between, "score_range", column="score", min_value=0.0, max_value=1.0),
        of_ok(present, "probe_score_present", column="probe_score"),
        of_ok(between, "probe_score_range", column="probe_score", min_value=0.0, max_value=1.0),
        of_ok_holds("reward_finite", "reward_finite"),
        # One value for everything means that the scorer ignores the text.
        of_ok(
            gx.ExpectColumnUniqueValueCountToBeBetween,
            "scores_differ",
            level=level_of_equal,
            column="score",
            min_value=2,
        ),
        of_ok(
            gx.ExpectColumnMaxToBeBetween,
            "some_response_has_text",
            column="response_characters",
            min_value=1,
        ),
    ]


def _suite(name: str, expectations: Iterable[Any]) -> "ExpectationSuite":
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=name, expectations=list(expectations))
