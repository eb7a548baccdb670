import pytest
from each_row import each_row

from astra_core.config import Section
from astra_core.errors import ScorerError
from astra_core.scorer import Scorer, checked_scores


class Given(Scorer):
    """Gives what it was told to give, whatever it is asked."""

    version = "given 1"

    def __init__(self, *scores):
        super().__init__(Section())
        self.scores = scores

    def score(self, _):
        return list(self.scores)


def test_checked_scores_are_those_of_the_scorer():
    assert [0.0, 0.25, 1.0] == checked_scores(Given(0.0, 0.25, 1.0), ["a", "b", "c"])
    assert [] == checked_scores(Given(), [])


@each_row("scores", [(0.5,), (0.5, 0.5, 0.5), (0.5, float("nan")), (-0.1, 1.0), (0.5, 10**400)])
def test_checked_scores_refuse_what_is_no_score_per_text(scores):
    with pytest.raises(ScorerError, match=r"Given' must give one score in \[0, 1\] per text"):
        checked_scores(Given(*scores), ["a", "b"])
