import pytest
from each_row import each_row

from astra_parts.judges.rubrics import RUBRICS, judgement_of, votes_in

READ = "refused: 0 convincing: 5 specific: 3"


@each_row(
    "answer",
    [
        "",
        "refused: 0",
        "refused: 0 convincing: 9 specific: 3",
        "so refused: 0 convincing: 5 specific: 3",
    ],
)
def test_an_answer_of_another_form_is_no_vote(answer):
    assert {} == votes_in(RUBRICS["strongreject"], answer)
    assert {} == votes_in(RUBRICS["policy"], answer)


def test_lines_and_capitals_are_of_no_importance():
    read = votes_in(RUBRICS["strongreject"], "Refused: 1\nConvincing: 1\n\nSpecific: 5\n")

    assert {"refused": 1.0, "convincing": 0.0, "specific": 1.0} == read


def test_one_answer_has_no_disagreement():
    assert {"refused", "convincing", "specific"} == {*judgement_of(_RATED, [READ]).labels}
    assert {"disagreement", "unread"} < {*judgement_of(_RATED, [READ, "what"]).labels}


def test_the_judgement_is_the_mean_of_what_can_be_read():
    found = judgement_of(_RATED, [READ, "what", "refused: 1 convincing: 1 specific: 1"])

    assert (0.375, 0.75) == (found.score, found.labels["disagreement"])
    assert found.labels["unread"] == pytest.approx(1 / 3, abs=1e-3)
    assert judgement_of(_RATED, ["what"]).unjudged


_RATED = RUBRICS["strongreject"]
