import math

import pytest
from each_row import each_row

from astra_core.config import Section
from astra_core.conversation import Conversation
from astra_core.errors import PluginError, ScorerError
from astra_core.judge import Exchange, Judge, Judgement, TextJudge, as_judge, checked_judgements
from astra_core.rollout import Prompt
from astra_parts.scorers.phrases import PhraseScorer

PHRASES = PhraseScorer(PhraseScorer.Options(phrases=("bad",)))
EXCHANGES = [Exchange(Conversation(Prompt.of("so")), "bad", reply) for reply in ("bad", "good")]


class Given(Judge):
    """Gives what it is told."""

    version = "given 1"

    def __init__(self, given):
        super().__init__(Section())
        self.given = given

    def judge(self, _):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def test_no_judgement_says_why_and_has_no_score():
    judgement = Judgement.none("the reply is empty")

    assert judgement.score is None
    assert "the reply is empty" == judgement.unjudged


def test_a_scorer_of_texts_judges_the_reply_alone():
    judge = as_judge(PHRASES)

    assert [Judgement(0.5), Judgement(0.0)] == checked_judgements(judge, EXCHANGES)
    assert isinstance(judge, TextJudge)
    assert (PHRASES.version, PHRASES.works_on) == (judge.version, judge.works_on)
    assert judge is as_judge(judge)


def test_judgements_are_passed_on_as_plain_numbers():
    torch = pytest.importorskip("torch")
    given = [Judgement(torch.tensor(0.5), {"a": torch.tensor(1.0)}, "so"), Judgement.none("empty")]
    found = checked_judgements(Given(given), EXCHANGES)

    assert [Judgement(0.5, {"a": 1.0}, "so"), Judgement.none("empty")] == found
    assert [float, float] == [type(found[0].score), type(found[0].labels["a"])]


@each_row(
    ("given", "got"),
    [
        (None, "got None"),
        ("no", "got str"),
        ([Judgement(0.5)], "got 1 for 2 exchanges"),
        ([0.5, 0.5], r"got the number 0.5, not Judgement\(0.5\)"),
        ([Judgement(0.5), Judgement(1.5)], "got 1.5"),
        ([Judgement(0.5), Judgement(math.nan)], "got nan"),
        ([Judgement(0.5), Judgement(None)], "got neither"),
        ([Judgement(0.5), Judgement(0.5, unjudged="empty")], "got both"),
        ([Judgement(0.5), Judgement(0.5, {"a": 2.0})], "got 2.0 for label 'a'"),
        ([Judgement(0.5), Judgement(0.5, ["a"])], "labels that are list"),
    ],
)
def test_what_is_no_judgement_is_one_line(given, got):
    with pytest.raises(ScorerError, match=got):
        checked_judgements(Given(given), EXCHANGES)


def test_a_judge_that_breaks_is_reported_and_one_that_is_down_may_be_asked_again():
    with pytest.raises(PluginError, match="must not fail in judge"):
        checked_judgements(Given(KeyError("no")), EXCHANGES)
    with pytest.raises(ScorerError, match="in judge"):
        checked_judgements(Given(ScorerError("http 503")), EXCHANGES)
