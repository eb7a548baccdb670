import pytest

from tasks.expectations.expected import holds, named, of_judged, of_ok, of_ok_holds

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def kind():
    from great_expectations.expectations import ExpectColumnMeanToBeBetween

    return ExpectColumnMeanToBeBetween


def test_an_expectation_carries_its_name_and_its_level(kind):
    made = named(kind, "mean", "warning", column="score", max_value=1.0)

    assert {"check": "mean", "level": "warning"} == made.meta
    assert "warning" == made.severity
    assert {"critical"} == {holds("a", "b").severity, of_ok_holds("a", "b").severity}


def test_turns_that_failed_or_were_not_judged_are_left_out(kind):
    ok = of_ok(kind, "mean", column="score", max_value=1.0)
    judged = of_judged(kind, "mean", level="warning", column="score", max_value=1.0)

    assert ok.row_condition != judged.row_condition
    assert ("critical", "warning") == (ok.meta["level"], judged.meta["level"])
