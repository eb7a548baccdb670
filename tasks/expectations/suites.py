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
    other = {"max_value": validation.max_non_ascii_fraction}
    if validation.languages:
        limits["foreign_script"] = ("foreign_letters", other)
        limits["language"] = ("other_language", {"max_value": _MAX_OTHER_LANGUAGE})
    else:
        limits["non_ascii"] = ("non_ascii_fraction", other)
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
        named(filled, f"{name}_present", column=name)
        for name in ("prompt_id", "text", "split", "family")
    ]
    leaks = [
        named(
            ExpectNoLeakage,
            check,
            key=key,
            description=f"All rows of one {key} must be in one split.",
        )
        for check, key in (("id_leakage", "prompt_id"), ("family_leakage", "family"))
    ]
    of_the_whole = [
        holds("id_matches_text", "id_matches"),
        named(gx.ExpectColumnValuesToBeUnique, "id_unique", column="prompt_id"),
        named(between, "text_not_empty", column="num_characters", min_value=1),
        named(within, "split_known", column="split", value_set=list(SPLITS)),
        *leaks,
        named(mean, "rejected_fraction", column="rejected", max_value=most_rejected),
        named(without, "licence_known", "warning", column="licence", value_set=["unknown", ""]),
    ]
    enough = [
        named(
            gx.ExpectTableRowCountToBeBetween,
            f"{split}_rows",
            min_value=validation.min_prompts,
            row_condition=(Column("split") == split) & (Column("rejected") == 0.0),
        )
        for split in SPLITS
    ]
    return _suite("prompts", [*present, *of_the_whole, *enough])


def rollout_suite(
    *, max_failed_fraction: float, vocabulary_size: int, are_verdicts: bool
) -> "ExpectationSuite":
    """What the rollouts must be before anything learns from them; reads ``rollout_facts``.

    Args:
        vocabulary_size: The attacker's.
        are_verdicts: Every score is 0 or 1. Equal scores can then mean a target that never, or
            always, offends, rather than a scorer that ignores the text.
    """
    from great_expectations import expectations as gx

    filled, mean = gx.ExpectColumnValuesToNotBeNull, gx.ExpectColumnMeanToBeBetween
    of_all = [
        named(gx.ExpectTableRowCountToBeBetween, "rows_present", min_value=1),
        named(filled, "row_id_present", column="row_id"),
        named(gx.ExpectColumnValuesToBeUnique, "row_id_unique", column="row_id"),
        named(mean, "failed_fraction", column="failed", max_value=max_failed_fraction),
    ]
    tree = [holds(name, name) for name in ("depth_matches", "parent_matches", "parent_known")]
    of_ok = [
        *_token_checks(vocabulary_size),
        *_score_checks("warning" if are_verdicts else "critical"),
    ]
    return _suite("rollouts", [*of_all, *tree, *of_ok, *rollout_warnings()])


def _token_checks(vocabulary_size: int) -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    last = vocabulary_size - 1
    return [
        of_ok(between, "probe_not_empty", column="num_probe_ids", min_value=1),
        of_ok(equal, "logprobs_per_token", column_A="num_probe_ids", column_B="num_probe_logprobs"),
        of_ok(equal, "mask_per_token", column_A="num_probe_ids", column_B="num_probe_mask"),
        of_ok_holds("reference_per_token", "reference_fits"),
        of_ok_holds("logprobs_valid", "logprobs_valid"),
        of_ok_holds("target_logprobs_valid", "target_logprobs_valid"),
        of_ok(between, "token_ids_from_zero", column="min_probe_id", min_value=0),
        of_ok(between, "token_ids_known", column="max_probe_id", max_value=last),
    ]


def _score_checks(level_of_equal: Level) -> list[Any]:
    from great_expectations import expectations as gx

    between, equal = gx.ExpectColumnValuesToBeBetween, gx.ExpectColumnPairValuesToBeEqual
    filled, longest = gx.ExpectColumnValuesToNotBeNull, gx.ExpectColumnMaxToBeBetween
    replies: dict[str, Any] = {"column_A": "num_responses", "column_B": "num_response_scores"}
    return [
        of_ok(equal, "score_per_response", **replies),
        of_ok_holds("response_scores_valid", "scores_valid"),
        of_ok_holds("score_is_mean", "score_is_mean"),
        of_judged(filled, "score_present", column="score"),
        of_ok(between, "score_range", column="score", min_value=0.0, max_value=1.0),
        of_ok(filled, "probe_score_present", column="probe_score"),
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
        of_ok(longest, "some_response_has_text", column="response_characters", min_value=1),
    ]


def _suite(name: str, expectations: Iterable[Any]) -> "ExpectationSuite":
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=name, expectations=list(expectations))
