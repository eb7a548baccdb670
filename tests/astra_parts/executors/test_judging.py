import pytest

from astra_core.config import Choice
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.judge import Exchange
from astra_core.rollout import Prompt
from astra_parts.executors.judging import Judging

PHRASES = Choice(name="phrases", options={"phrases": ["bad"]})
BEFORE = Conversation(Prompt.of("a seed", {"goal": "an insult"}))
REPLIES = ("bad", "good", "so bad bad", "", "fine")
EXCHANGES = [Exchange(BEFORE, "why?", reply) for reply in REPLIES]


@pytest.mark.parametrize("executor", ["local", pytest.param("processes", marks=pytest.mark.real)])
def test_exchanges_are_judged_in_their_order_whoever_judges(executor):
    judging = Judging.of(PHRASES, Choice(name=executor))
    here = Judging.of(PHRASES, Choice(name="local"))
    alone = [here.judgements([[exchange]])[0].score for exchange in EXCHANGES]

    assert alone == [own.score for own in judging.judgements([EXCHANGES[:2], EXCHANGES[2:]])]
    assert [] == judging.judgements([])
    assert 0.0 == alone[1] < alone[0]


def test_a_wrong_option_is_told_before_a_worker_starts():
    with pytest.raises(ConfigurationError, match="num_workers"):
        Judging.of(PHRASES, Choice(name="processes", options={"num_workers": 0}))
