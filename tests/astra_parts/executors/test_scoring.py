import pytest
from closed_executors import close_executors

from astra_core.config import Choice
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.judge import Exchange
from astra_core.rollout import Prompt
from astra_parts.executors.scoring import Scoring, executor_of

PHRASES = Choice(name="phrases", options={"phrases": ["bad"]})
TEXTS = ["bad", "good", "so bad bad", "", "fine"]


@pytest.mark.parametrize("executor", ["local", pytest.param("processes", marks=pytest.mark.real)])
def test_texts_are_scored_in_their_order_whoever_scores(executor):
    scoring = Scoring.of(PHRASES, Choice(name=executor))
    alone = [Scoring.of(PHRASES, Choice(name="local")).scores([x], at_once=1)[0] for x in TEXTS]
    before = Conversation(Prompt.of("a seed", {"goal": "an insult"}))
    asked = [Exchange(before, "why?", reply) for reply in TEXTS]

    assert alone == scoring.scores(TEXTS, at_once=2)
    assert alone == [own.score for own in scoring.judgements([asked[:2], asked[2:]])]
    assert [] == scoring.scores([], at_once=2) == scoring.judgements([])
    assert 0.0 == alone[1] < alone[0]


def test_a_wrong_option_is_reported_before_a_worker_starts():
    with pytest.raises(ConfigurationError, match="num_workers"):
        Scoring.of(PHRASES, Choice(name="processes", options={"num_workers": 0}))


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
