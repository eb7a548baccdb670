import pytest
from closed_executors import close_executors

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_parts.executors.scoring import Scoring
from astra_parts.executors.shared import executor_of

TWO = Choice(name="processes", options={"num_workers": 2})


@pytest.fixture(autouse=True)
def closed():
    close_executors()
    yield
    close_executors()


def test_equal_choices_have_one_executor_and_others_their_own():
    assert executor_of(TWO) is executor_of(TWO.model_copy(deep=True))
    assert executor_of(TWO) is not executor_of(Choice(name="local"))


def test_after_the_end_of_all_there_is_another():
    before = executor_of(TWO)
    close_executors()

    assert before is not executor_of(TWO)


def test_a_scorer_works_by_the_executor_that_others_use():
    scorer = Choice(name="phrases", options={"phrases": ["bad"]})

    assert Scoring.of(scorer, TWO).executor is executor_of(TWO)


def test_a_wrong_choice_is_refused():
    with pytest.raises(ConfigurationError, match="num_workers"):
        executor_of(Choice(name="processes", options={"num_workers": 0}))
