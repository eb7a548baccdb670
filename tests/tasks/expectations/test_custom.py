"""The expectations that the library lacks, run by the library itself."""

import math

import pandas as pd
import pytest
from each_row import each_row

from tasks.expectations import validate_frame

pytestmark = pytest.mark.real


def check_of(frame, kind, **settings):
    """What a suite of this one expectation finds."""
    import great_expectations as gx

    expectation = kind(**settings, meta={"check": "own", "level": "row"})
    suite = gx.ExpectationSuite(name="rows", expectations=[expectation])
    (check,) = validate_frame(frame, suite, id_column="name").checks
    return check


def texts_holding(finding, *texts, **settings):
    from tasks.expectations.custom import ExpectTextToHoldNo

    frame = pd.DataFrame({"name": [f"row {i}" for i in range(len(texts))], "text": texts})
    return check_of(frame, ExpectTextToHoldNo, column="text", finding=finding, **settings)


def leakage(rows, **settings):
    from tasks.expectations.custom import ExpectNoLeakage

    frame = pd.DataFrame(rows, columns=["name", "split"])
    return check_of(frame, ExpectNoLeakage, key="name", **settings)


def test_texts_that_hold_a_finding_are_found_by_row():
    check = texts_holding("email", "fine", "a@b.org", "also fine", "x c@d.net y")

    assert (False, 2.0, (1, 3)) == (check.success, check.unexpected, check.rows)
    assert ("row 1", "row 3") == check.sample_ids
    assert ("text", "") == (check.column, check.note)


def test_each_finding_is_looked_for_by_its_own_pattern():
    texts = ("a@b.org", "see http://a.b", "fine")

    assert (0,) == texts_holding("email", *texts).rows
    assert (1,) == texts_holding("url", *texts).rows
    assert () == texts_holding("replacement_character", *texts).rows


@each_row("texts", [("fine", "also"), (None, "fine"), (None, None)])
def test_clean_and_absent_texts_hold_nothing(texts):
    check = texts_holding("email", *texts)

    assert (True, ()) == (check.success, check.rows)


def test_a_share_of_findings_may_be_allowed():
    texts = ("a@b.org", "fine", "fine", "fine")

    assert texts_holding("email", *texts, mostly=0.75).success
    assert not texts_holding("email", *texts, mostly=0.8).success


def test_a_finding_that_does_not_exist_is_a_check_that_was_not_made():
    check = texts_holding("no such", "a@b.org")

    assert not check.success
    assert check.note.startswith("not checked")


def test_a_key_in_two_splits_leaks():
    check = leakage([("b", "train"), ("a", "train"), ("b", "dev"), ("a", "test"), ("c", "dev")])

    assert (False, 2.0) == (check.success, check.unexpected)
    # Sorted, whatever the order of the rows.
    assert ("a", "b") == check.sample_ids
    assert "name" == check.column


@each_row(
    "rows",
    [
        [("a", "train"), ("b", "dev")],
        # Twice in one split is a repetition, and another check's business.
        [("a", "train"), ("a", "train")],
        # Nothing is known of what has no key or no split.
        [(None, "train"), (None, "dev")],
        [("a", "train"), ("a", None), ("a", math.nan)],
        [("a", "train")],
    ],
)
def test_a_key_in_one_split_does_not_leak(rows):
    check = leakage(rows)

    assert (True, 0.0, ()) == (check.success, check.unexpected, check.sample_ids)


def test_a_key_in_three_splits_leaks_once():
    assert 1.0 == leakage([("a", "train"), ("a", "dev"), ("a", "test")]).unexpected


def test_no_more_than_ten_leaking_keys_are_named():
    rows = [(f"key {i:02d}", split) for i in range(25) for split in ("train", "dev")]
    check = leakage(rows)

    assert 25.0 == check.unexpected
    assert tuple(f"key {i:02d}" for i in range(10)) == check.sample_ids


def test_splits_may_stand_in_another_column():
    from tasks.expectations.custom import ExpectNoLeakage

    frame = pd.DataFrame({"name": ["a", "a"], "split": ["x", "x"], "part": ["x", "y"]})

    assert not check_of(frame, ExpectNoLeakage, key="name", split="part").success
    assert check_of(frame, ExpectNoLeakage, key="name").success
