import numpy as np
import pandas as pd
import pytest
from each_row import each_row

from astra_core.rollout.metadata import prompt_id_of
from tasks.expectations import validate_frame
from tasks.expectations.facts import language_facts, prompt_facts
from tasks.expectations.suites import prompt_row_suite, prompt_suite
from tasks.params.schema import ValidationConfiguration
from tasks.records.prompt_table import SPLITS

pytestmark = pytest.mark.real

CONFIG = ValidationConfiguration(
    min_characters=3,
    max_characters=60,
    max_words=8,
    max_non_ascii_fraction=0.5,
    max_rejected_fraction=0.2,
    min_prompts=2,
)
GOOD = [f"How is the weather in town {number}?" for number in range(12)]


def prompt_frame(texts=GOOD):
    frame = pd.DataFrame(
        {
            "prompt_id": [prompt_id_of(text) for text in texts],
            "text": texts,
            "split": [SPLITS[number % 3] for number in range(len(texts))],
            "source": "made",
            "licence": "MIT",
            "family": [prompt_id_of(text) for text in texts],
        }
    )
    return with_facts(frame)


def with_facts(frame):
    return prompt_facts(frame).assign(prompt_score=0.1, rejected=0.0)


def failed_rows(frame, config=CONFIG):
    report = validate_frame(frame, prompt_row_suite(config), id_column="prompt_id")
    return {check.check: check.rows for check in report.checks if not check.success}


def failed_set(frame, *, of=()):
    """The report of the set's suite, or of those checks, and the checks that fail."""
    suite = prompt_suite(CONFIG)
    if of:
        suite.expectations = [each for each in suite.expectations if each.meta["check"] in of]
    report = validate_frame(frame, suite, id_column="prompt_id")
    return report, [check.check for check in report.checks if not check.success]


def test_a_project_that_names_its_languages_rejects_the_others():
    texts = [*GOOD[:2], "wie komme ich an das geld von oma", "как дела", "größer? ça va!"]
    named = CONFIG.model_copy(update={"languages": ("en",)})
    frame = language_facts(prompt_frame(texts), named.languages)

    assert {"foreign_script": (3,), "language": (2,)} == failed_rows(frame, named)
    assert {"non_ascii": (3,)} == failed_rows(prompt_frame(texts))


# Check: a text it rejects, and one as close to it as may pass.
EDGES = {
    "min_characters": ("hi", "hey"),
    "max_characters": ("a" * 61, "a" * 60),
    "max_words": ("a b c d e f g h i", "a b c d e f g h"),
    "non_ascii": ("äöüß a", "äöü abc"),
    "control_character": ("a bell\x07", "a\ttab"),
    "replacement_character": ("caf\ufffd", "café"),
    "template_token": ("hello {name}", "hello name"),
    "email": ("jane@example.invalid", "jane at example"),
    "phone": ("call 555-123-4567", "call 5551"),
    "user_mention": ("hello u/somebody", "hello somebody"),
    "url": ("see http://a.b/c", "see it"),
}


@pytest.fixture(scope="module")
def failed_at_the_edges():
    """The rows each check rejects when the texts of ``EDGES`` lie one after the other."""
    return failed_rows(prompt_frame([text for pair in EDGES.values() for text in pair]))


@each_row("check", EDGES)
def test_row_suite_rejects_the_bad_row_and_no_other(failed_at_the_edges, check):
    assert (2 * list(EDGES).index(check),) == failed_at_the_edges[check]


def test_row_suite_rejects_prompts_at_the_score_limit():
    frame = prompt_frame()
    frame.loc[3, "prompt_score"] = CONFIG.max_prompt_score
    frame.loc[4, "prompt_score"] = CONFIG.max_prompt_score - 0.01
    frame.loc[5, "prompt_score"] = np.nan  # not scored

    assert {"prompt_score": (3,)} == failed_rows(frame)
    assert {} == failed_rows(frame, CONFIG.model_copy(update={"max_prompt_score": None}))


def test_row_suite_keeps_personal_data_when_told_to():
    config = CONFIG.model_copy(update={"reject_personal_data": False})

    assert {} == failed_rows(prompt_frame(["mail jane@example.org"]), config)


def test_set_suite_passes_good_prompts():
    report, failed = failed_set(prompt_frame())

    assert [] == failed
    assert report.success


# Check: a column and what must not stand in it.
BROKEN_CELLS = {
    "prompt_id_present": ("prompt_id", None),
    "text_present": ("text", None),
    "text_not_empty": ("text", ""),
    "split_present": ("split", None),
    "family_present": ("family", None),
    "id_matches_text": ("prompt_id", "0" * 16),
    "split_known": ("split", "training"),
}


@pytest.fixture(scope="module")
def report_of_broken_cells():
    """The report on prompts of which each of the first breaks the rule of one check."""
    frame = prompt_frame().astype(object)
    for row, (column, value) in enumerate(BROKEN_CELLS.values()):
        frame.loc[row, column] = value
    return failed_set(with_facts(frame))[0]


@each_row("check", BROKEN_CELLS)
def test_set_suite_stops_at_one_cell_that_breaks_a_rule(report_of_broken_cells, check):
    found = next(entry for entry in report_of_broken_cells.checks if entry.check == check)

    assert check in report_of_broken_cells.critical_failed
    assert list(BROKEN_CELLS).index(check) in found.rows


def repeat(frame, **changes):
    return with_facts(pd.concat([frame, frame.iloc[[0]].assign(**changes)], ignore_index=True))


def share_family(frame):
    return frame.assign(family=frame["family"].where(frame.index != 1, frame.loc[0, "family"]))


OF_THE_WHOLE = ("id_unique", "id_leakage", "family_leakage", "rejected_fraction")
OF_THE_WHOLE += ("train_rows", "dev_rows", "test_rows")


@each_row(
    ("checks", "broken"),
    [
        (["id_unique"], repeat),
        (["id_unique", "id_leakage", "family_leakage"], lambda frame: repeat(frame, split="dev")),
        (["family_leakage"], share_family),
        (["rejected_fraction"], lambda frame: frame.assign(rejected=[1.0] * 3 + [0.0] * 9)),
        (["train_rows"], lambda frame: frame[frame["split"] != "train"]),
        (
            ["rejected_fraction", "dev_rows"],
            lambda frame: frame.assign(rejected=(frame["split"] == "dev") * 1.0),
        ),
    ],
)
def test_set_suite_stops_at_a_set_that_breaks_a_rule(checks, broken):
    report, failed = failed_set(broken(prompt_frame()), of=OF_THE_WHOLE)

    assert checks == failed
    assert not report.success


def test_set_suite_names_the_leaking_ids():
    frame = prompt_frame()
    report, _ = failed_set(repeat(frame, split="dev"), of=("id_leakage",))

    (check,) = report.checks
    assert (1.0, (frame.loc[0, "prompt_id"],)) == (check.unexpected, check.sample_ids)


def test_set_suite_only_warns_of_an_unknown_licence():
    frame = prompt_frame()
    frame.loc[:2, "licence"] = ["unknown", "", None]
    report, failed = failed_set(with_facts(frame))

    assert ["licence_known"] == failed == list(report.warnings)
    assert report.success
    (check,) = [check for check in report.checks if check.check == "licence_known"]
    assert {0, 1, 2} == set(check.rows)


def test_a_check_without_its_column_is_reported_as_not_made():
    own = ("family_present", "family_leakage")
    report, failed = failed_set(prompt_frame().drop(columns="family"), of=own)

    assert set(own) == set(failed)
    assert not report.success
    check = next(check for check in report.checks if check.check == "family_present")
    assert check.note.startswith("not checked")


def test_a_report_never_quotes_a_text():
    frame = prompt_frame([*GOOD, "unspeakable {name} u/somebody http://a.b"])
    rows = validate_frame(frame, prompt_row_suite(CONFIG), id_column="prompt_id")

    assert not rows.success or rows.checks
    for report in (rows, failed_set(frame.assign(licence=""))[0]):
        assert "unspeakable" not in str(report.to_record()) + report.to_markdown()


def test_a_report_shows_the_limits_as_a_person_writes_them_whatever_the_index():
    frame = prompt_frame([*GOOD, "see http://a.b"])
    frame.index = pd.Index(range(100, 113))
    report = validate_frame(frame, prompt_row_suite(CONFIG), id_column="prompt_id")
    limits = {check.check: check.limit for check in report.checks}

    assert {"url": (12,)} == {check.check: check.rows for check in report.checks if check.rows}
    assert (">= 3", "<= 8", "< 0.5", "") == tuple(
        limits[name] for name in ("min_characters", "max_words", "prompt_score", "url")
    )
