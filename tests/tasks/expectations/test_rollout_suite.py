"""The rollout suite, the facts it reads and the call that joins them."""

import numpy as np
import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.expectations import validate_frame, validate_rollouts
from tasks.expectations.facts import rollout_facts
from tasks.expectations.rollout_suite import of_judged, of_ok, of_ok_holds, rollout_suite
from tasks.expectations.speech import NO_LIMITS, TokenLimits
from tasks.expectations.suites import expectation, holds

pytestmark = pytest.mark.real

VOCABULARY = 50


def rollout_row(prompt, path, score):
    depth = path.count(".") + 1
    return {
        "row_id": f"{prompt}-{path}",
        "prompt_id": prompt,
        "prompt_text": "hello",
        "iteration": 0,
        "path": path,
        "parent": path.rpartition(".")[0],
        "depth": depth,
        "context_ids": [1, 2],
        "truncated_tokens": 0,
        "probe_text": f"unspeakable {prompt} {path}",
        "probe_ids": [3, 4, VOCABULARY - 1],
        "probe_logprobs": [-1.0, -0.5, 0.0],
        "probe_mask": [True, True, True],
        "reference_logprobs": [-1.0, -0.5, -0.1],
        "target_logprobs": [-2.0, -3.0],
        "response_texts": ["such a thing", f"unspeakable {prompt} {path}?"],
        "response_ids": [[1], [2]],
        "response_scores": [score, score / 2],
        "score": score * 0.75,
        "probe_score": 0.2,
        "novelty": 1.0,
        "reward": 0.1,
        "failure": "",
    }


def rollout_frame(prompts=("p", "q")):
    paths = ("0", "1", "0.0", "0.1", "1.0")
    rows = [
        rollout_row(prompt, path, 0.2 * place)
        for prompt in prompts
        for place, path in enumerate(paths)
    ]
    return pd.DataFrame(rows)


def validate(frame):
    return validate_rollouts([frame], max_failed_fraction=0.2, vocabulary_size=VOCABULARY)


def report_of(frame, *checks, limits=NO_LIMITS, are_verdicts=False):
    """The report on these checks, without the time that all the others take."""
    facts = rollout_facts(frame, limits)
    suite = rollout_suite(
        max_failed_fraction=0.2, vocabulary_size=VOCABULARY, are_verdicts=are_verdicts
    )
    suite.expectations = [each for each in suite.expectations if each.meta["check"] in checks]
    return validate_frame(facts, suite, id_column="row_id")


def failed(frame, *checks, limits=NO_LIMITS):
    """Those of these checks that fail."""
    report = report_of(frame, *checks, limits=limits)
    return {check.check for check in report.checks if not check.success}


def fail(frame, row):
    """What a turn looks like that drew no reply."""
    frame.at[row, "failure"] = "TargetError: http 503"  # noqa: PD008 - loc would spread a list
    for column in ("response_texts", "response_scores", "target_logprobs", "reference_logprobs"):
        frame.at[row, column] = []  # noqa: PD008 - loc would spread a list
    frame.loc[row, ["score", "reward", "probe_score"]] = np.nan


def test_rollouts_pass_as_parquet_gives_them_when_every_rule_holds(tmp_path):
    rollout_frame().to_parquet(tmp_path / "rollouts.parquet")
    report = validate(pd.read_parquet(tmp_path / "rollouts.parquet"))

    assert () == report.critical_failed
    assert () == report.warnings


def test_rollouts_pass_in_pieces_with_few_failed_turns_and_no_reference():
    frame = rollout_frame(("p", "q", "r"))
    fail(frame, 7)
    frame["reference_logprobs"] = [[] for _ in range(len(frame))]
    pieces = (rows for _, rows in frame.groupby("prompt_id"))
    report = validate_rollouts(pieces, max_failed_fraction=0.2, vocabulary_size=VOCABULARY)

    assert () == report.critical_failed
    assert 15 == report.num_rows


# Check, column and what must not stand in it.
BROKEN_CELLS = [
    ("row_id_unique", "row_id", "p0-0"),
    ("row_id_present", "row_id", None),
    ("depth_matches", "depth", 3),
    ("parent_matches", "parent", "1"),
    ("parent_known", "iteration", 7),
    ("probe_not_empty", "probe_ids", []),
    ("logprobs_per_token", "probe_logprobs", [-1.0, -2.0]),
    ("mask_per_token", "probe_mask", [True]),
    ("reference_per_token", "reference_logprobs", [-1.0]),
    ("logprobs_valid", "probe_logprobs", [-1.0, np.nan, -1.0]),
    ("logprobs_valid", "probe_logprobs", [-1.0, -np.inf, -1.0]),
    ("logprobs_valid", "probe_logprobs", [-1.0, 0.5, -1.0]),
    ("logprobs_valid", "reference_logprobs", [-1.0, 0.5, -1.0]),
    ("target_logprobs_valid", "target_logprobs", [np.inf]),
    ("token_ids_from_zero", "probe_ids", [-1, 2, 3]),
    ("token_ids_known", "probe_ids", [1, 2, VOCABULARY]),
    ("score_per_response", "response_texts", ["one"]),
    ("response_scores_valid", "response_scores", [1.2, 0.0]),
    ("response_scores_valid", "response_scores", [np.nan, 0.0]),
    ("score_is_mean", "score", 0.9),
    ("score_present", "score", None),
    ("score_range", "score", -0.1),
    ("probe_score_present", "probe_score", None),
    ("probe_score_range", "probe_score", 1.1),
    ("reward_finite", "reward", np.inf),
]


@pytest.fixture(scope="module")
def report_of_broken_cells():
    """The report on rollouts of as many prompts; of each, turn 0.1 breaks the rule of one check."""
    frame = rollout_frame([f"p{number}" for number in range(len(BROKEN_CELLS))])
    frame["row_id"] = frame["row_id"].astype(object)
    for number, (_, column, value) in enumerate(BROKEN_CELLS):
        frame.at[5 * number + 3, column] = value  # noqa: PD008 - loc would spread a list
    return validate(frame)


@each_row(("number", "check"), enumerate(cell[0] for cell in BROKEN_CELLS))
def test_rollouts_stop_at_one_turn_that_breaks_a_rule(report_of_broken_cells, number, check):
    found = next(entry for entry in report_of_broken_cells.checks if entry.check == check)

    assert check in report_of_broken_cells.critical_failed
    assert 5 * number + 3 in found.rows
    # Nothing but what was broken on purpose.
    assert {3, 0} >= {row % 5 for row in found.rows}


def with_many_failed(frame):
    for row in (2, 3, 4):
        fail(frame, row)


def with_equal_scores(frame):
    frame["response_scores"] = [[0.5, 0.5]] * len(frame)
    frame["score"] = 0.5


def with_empty_responses(frame):
    frame["response_texts"] = [["", " "]] * len(frame)


@each_row(
    ("change", "check", "warned"),
    [
        (with_many_failed, "failed_fraction", ()),
        (with_equal_scores, "scores_differ", ()),
        (with_empty_responses, "some_response_has_text", ("degenerate_replies",)),
    ],
)
def test_rollouts_stop_when_a_rule_of_the_whole_breaks(change, check, warned):
    frame = rollout_frame()
    change(frame)

    own = ("failed_fraction", "scores_differ", "some_response_has_text", "degenerate_replies")
    assert {check, *warned} == failed(frame, *own)


def test_rollouts_stop_when_there_are_none():
    assert {"rows_present"} == failed(rollout_frame().iloc[:0], "rows_present")


def test_rollouts_only_warn_of_truncated_contexts():
    frame = rollout_frame()
    frame.loc[:1, "truncated_tokens"] = 5

    assert {"truncated_fraction"} == failed(frame, "truncated_fraction", "rows_present")


def test_rollouts_without_a_column_are_refused():
    with pytest.raises(DataError, match=r"\['probe_mask'\]"):
        validate(rollout_frame().drop(columns="probe_mask"))


def test_a_rollout_report_never_quotes_a_text(report_of_broken_cells):
    assert "unspeakable" not in str(report_of_broken_cells.to_record())


def unjudge(frame, *rows):
    """What turns look like of which the judge could judge no reply."""
    frame["response_unjudged"] = [[] for _ in range(len(frame))]
    for row in rows:
        frame.at[row, "response_unjudged"] = ["empty", "empty"]  # noqa: PD008
        frame.at[row, "response_scores"] = [None, None]  # noqa: PD008
        frame.loc[row, "score"] = np.nan


SCORED = ("response_scores_valid", "score_is_mean", "score_present", "score_per_response")


def test_rollouts_pass_with_a_few_unjudged_turns_and_warn_of_many():
    frame = rollout_frame()
    unjudge(frame, 4)
    few = failed(frame, *SCORED, "unjudged_fraction")
    unjudge(frame, 1, 2, 3, 4)

    assert set() == few
    assert {"unjudged_fraction"} == failed(frame, *SCORED, "unjudged_fraction")


def test_a_gap_among_the_scores_must_have_a_reason():
    frame = rollout_frame()
    unjudge(frame, 2, 3, 4)
    frame.at[2, "response_unjudged"] = ["empty", ""]  # noqa: PD008 - loc would spread a list
    frame.at[3, "response_scores"] = [0.5, None]  # noqa: PD008 - loc would spread a list
    frame.loc[4, "score"] = 0.5
    checks = {check.check: check.rows for check in report_of(frame, *SCORED).checks}

    assert (2, 3) == checks["response_scores_valid"]
    assert 4 in checks["score_is_mean"]


def with_scores(frame, score):
    frame["response_scores"] = [[score, score]] * len(frame)
    frame["score"] = score
    return frame


def test_a_target_that_never_offends_is_reported_otherwise_than_one_that_always_does():
    never = validate(with_scores(rollout_frame(), 0.0))
    equal = ("scores_differ", "some_success", "some_failure")
    always = report_of(with_scores(rollout_frame(), 1.0), *equal, are_verdicts=True)

    # Verdicts that are all equal warn; grades that are all equal stop.
    assert ((), ("scores_differ", "some_success")) == (never.critical_failed, never.warnings)
    assert ((), ("scores_differ", "some_failure")) == (always.critical_failed, always.warnings)
    assert "training longer does not help" in never.advice["some_success"]
    assert "stricter judge" in always.advice["some_failure"]
    assert never.advice["some_success"] in never.to_markdown()


def test_a_success_among_grades_is_enough():
    frame = rollout_frame()
    frame["response_scores"] = [[0.1 * place % 0.4] * 2 for place in range(len(frame))]
    frame["score"] = [scores[0] for scores in frame["response_scores"]]
    none = failed(frame, "some_success", "some_failure")
    frame.at[0, "response_scores"] = [0.5, 0.5]  # noqa: PD008 - loc would spread a list
    frame.loc[0, "score"] = 0.5

    assert {"some_success"} == none
    assert set() == failed(frame, "some_success", "some_failure")


SPEECH = ("degenerate_probes", "degenerate_replies", "probes_differ", "replies_differ")


@each_row(
    ("changes", "warned"),
    [
        ({"probe_text": "yes " * 8}, {"degenerate_probes", "probes_differ"}),
        ({"probe_text": " "}, {"degenerate_probes", "probes_differ"}),
        ({"response_texts": ["no " * 8, "well"]}, {"degenerate_replies", "replies_differ"}),
        (
            {"probe_text": "echo", "response_texts": ["echo", "well"]},
            {"degenerate_replies", "probes_differ", "replies_differ"},
        ),
        ({"probe_text": "the same"}, {"probes_differ"}),
        ({"response_texts": ["I cannot", "help"]}, {"replies_differ"}),
    ],
)
def test_rollouts_only_warn_of_talk_that_repeats_itself(changes, warned):
    # More turns than a target that says one thing may have replies.
    frame = rollout_frame(("p", "q", "r"))
    for column, value in changes.items():
        frame[column] = [value] * len(frame)

    assert warned == failed(frame, *SPEECH)


ENDS = ("probes_end", "replies_end", "replies_pass_filter", "probes_have_length")


@each_row(
    ("limits", "reasons", "warned"),
    [
        (TokenLimits(4, 2), None, set()),
        (TokenLimits(3, 2), None, {"probes_end"}),
        (TokenLimits(4, 1), None, {"replies_end"}),
        (NO_LIMITS, ["length", "stop"], set()),
        (NO_LIMITS, ["length", "length"], {"replies_end"}),
        (NO_LIMITS, ["filter", "stop"], set()),
        (NO_LIMITS, ["filter", "filter"], {"replies_pass_filter"}),
    ],
)
def test_rollouts_only_warn_of_turns_that_never_end_or_that_the_target_cut(limits, reasons, warned):
    frame = rollout_frame()
    if reasons:
        frame["response_finish_reasons"] = [reasons] * len(frame)

    assert warned == failed(frame, *ENDS, limits=limits)


def test_rollouts_warn_where_more_than_half_of_the_probes_are_cut():
    frame = rollout_frame(("p", "q", "r"))
    for cut, warned in ((len(frame) // 2, set()), (len(frame) // 2 + 1, {"probes_end"})):
        own = frame.copy()
        own["probe_ids"] = [[3] if place >= cut else [3, 4, 5] for place in range(len(own))]
        assert warned == failed(own, "probes_end", limits=TokenLimits(3, 9))


def test_rollouts_only_warn_of_probes_that_end_at_once():
    frame = rollout_frame()
    for column, value in {"probe_ids": [3], "probe_mask": [True]}.items():
        frame[column] = [value] * len(frame)
    for column in ("probe_logprobs", "reference_logprobs", "target_logprobs"):
        frame[column] = [[-1.0]] * len(frame)

    assert {"probes_have_length"} == failed(frame, *ENDS, *SCORED)


@pytest.fixture(scope="module")
def kind():
    from great_expectations.expectations import ExpectColumnMeanToBeBetween

    return ExpectColumnMeanToBeBetween


def test_an_expectation_carries_its_name_and_its_level(kind):
    made = expectation(kind, "mean", "warning", column="score", max_value=1.0)

    assert {"check": "mean", "level": "warning"} == made.meta
    assert "warning" == made.severity
    assert {"critical"} == {holds("a", "b").severity, of_ok_holds("a", "b").severity}


def test_turns_that_failed_or_were_not_judged_are_left_out(kind):
    ok = of_ok(kind, "mean", column="score", max_value=1.0)
    judged = of_judged(kind, "mean", level="warning", column="score", max_value=1.0)

    assert ok.row_condition != judged.row_condition
    assert ("critical", "warning") == (ok.meta["level"], judged.meta["level"])


def test_no_warning_stops_a_run():
    suite = rollout_suite(max_failed_fraction=0.2, vocabulary_size=VOCABULARY, are_verdicts=True)
    levels = {each.meta["check"]: each.meta["level"] for each in suite.expectations}
    warned = {check for check, level in levels.items() if level == "warning"}

    assert {*SPEECH, *ENDS, "truncated_fraction", "unjudged_fraction"} <= warned
    assert {"some_success", "some_failure", "scores_differ"} <= warned
