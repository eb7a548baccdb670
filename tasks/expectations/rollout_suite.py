"""The suite of rollouts: what stops a run, and what a person should look at."""

from typing import TYPE_CHECKING, Any

from tasks.expectations.report import Level
from tasks.expectations.suites import expectation, holds, suite_of

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

# Above this share of shortened contexts, max_context_tokens may be too small.
_MAX_TRUNCATED_FRACTION = 0.1
_MAX_UNJUDGED_FRACTION = 0.1
# A larger share points to a broken format rather than a weak model.
_MAX_DEGENERATE_FRACTION = 0.25
_MIN_DISTINCT_PROBES = 0.5
# A target that refuses half of all probes in the same words still answers the others differently.
_MIN_DISTINCT_REPLIES = 0.1
_MAX_CUT_FRACTION = 0.95
# A probe that is cut is half a question, and learning goes by its end; a cut reply is still judged.
_MAX_CUT_PROBES = 0.5
_MAX_ENDED_AT_ONCE = 0.5
_MAX_FILTERED_FRACTION = 0.5


def rollout_suite(
    *, max_failed_fraction: float, vocabulary_size: int, are_verdicts: bool
) -> "ExpectationSuite":
    """What the rollouts must be before anything learns from them; reads ``rollout_facts``.

    ``vocabulary_size``: the attacker's. ``are_verdicts``: every score is 0 or 1; equal scores can
    then mean a target that never, or always, offends, rather than a scorer that ignores the text.
    """
    from great_expectations import expectations as gx

    filled, mean = gx.ExpectColumnValuesToNotBeNull, gx.ExpectColumnMeanToBeBetween
    of_all = [
        expectation(gx.ExpectTableRowCountToBeBetween, "rows_present", min_value=1),
        expectation(filled, "row_id_present", column="row_id"),
        expectation(gx.ExpectColumnValuesToBeUnique, "row_id_unique", column="row_id"),
        expectation(mean, "failed_fraction", column="failed", max_value=max_failed_fraction),
    ]
    tree = [holds(name, name) for name in ("depth_matches", "parent_matches", "parent_known")]
    tokens = _token_checks(vocabulary_size)
    scores = _score_checks("warning" if are_verdicts else "critical")
    return suite_of("rollouts", [*of_all, *tree, *tokens, *scores, *_warnings()])


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


def _warnings() -> list[Any]:
    """What a person should look at, although training can continue."""
    from great_expectations import expectations as gx

    mean = gx.ExpectColumnMeanToBeBetween
    distinct = gx.ExpectColumnProportionOfUniqueValuesToBeBetween

    def at_most(check: str, column: str, share: float) -> Any:
        return expectation(mean, check, "warning", column=column, max_value=share)

    def success(check: str, **bounds: Any) -> Any:
        return of_judged(mean, check, level="warning", column="success", **bounds)

    def at_least_distinct(check: str, column: str, share: float) -> Any:
        return of_ok(distinct, check, level="warning", column=column, min_value=share)

    return [
        at_most("truncated_fraction", "truncated", _MAX_TRUNCATED_FRACTION),
        at_most("unjudged_fraction", "unjudged", _MAX_UNJUDGED_FRACTION),
        # Neither a target that never offends nor one that always does shows what training did.
        success("some_success", min_value=0.0, strict_min=True),
        success("some_failure", max_value=1.0, strict_max=True),
        at_most("degenerate_probes", "degenerate_probe", _MAX_DEGENERATE_FRACTION),
        at_most("degenerate_replies", "degenerate_reply", _MAX_DEGENERATE_FRACTION),
        at_least_distinct("probes_differ", "probe_key", _MIN_DISTINCT_PROBES),
        at_least_distinct("replies_differ", "reply_key", _MIN_DISTINCT_REPLIES),
        at_most("probes_end", "probe_cut", _MAX_CUT_PROBES),
        at_most("replies_end", "reply_cut", _MAX_CUT_FRACTION),
        at_most("replies_pass_filter", "reply_filtered", _MAX_FILTERED_FRACTION),
        at_most("probes_have_length", "ends_at_once", _MAX_ENDED_AT_ONCE),
    ]


def of_ok(kind: Any, check: str, *, level: Level = "critical", **rest: Any) -> Any:
    """An expectation of the turns that did not fail."""
    from great_expectations.expectations.row_conditions import Column

    return expectation(kind, check, level, row_condition=Column("failed") == 0.0, **rest)


def of_judged(kind: Any, check: str, *, level: Level = "critical", **rest: Any) -> Any:
    """An expectation of the turns with a judged reply."""
    from great_expectations.expectations.row_conditions import Column

    is_judged = (Column("failed") == 0.0) & (Column("unjudged") == 0.0)
    return expectation(kind, check, level, row_condition=is_judged, **rest)


def of_ok_holds(check: str, column: str) -> Any:
    """A critical expectation that a fact is true of every turn that did not fail."""
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return of_ok(ExpectColumnValuesToBeInSet, check, column=column, value_set=[True])
