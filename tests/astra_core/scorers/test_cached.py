import pytest

from astra_core.config import Choice, Section
from astra_core.conversation import Conversation, Message
from astra_core.errors import ScorerError
from astra_core.judge import Exchange, Judge, Judgement
from astra_core.registry import build
from astra_core.rollout import Prompt
from astra_core.scorer import Scorer
from astra_core.scorers.cached import CachedJudge, CachedScorer, with_cache


class Asked(Scorer):
    """Scores a text by its length and keeps what it was asked."""

    version = "asked 1"
    works_on = "elsewhere"

    def __init__(self):
        super().__init__(Section())
        self.batches = []
        self.is_reachable = True

    def score(self, texts):
        if not self.is_reachable:
            msg = "http 503"
            raise ScorerError(msg)
        self.batches.append(list(texts))
        return [1.0 / (1 + len(text)) for text in texts]


def test_a_text_reaches_the_judge_once():
    judge = Asked()
    scorer = CachedScorer(judge, 10)

    assert judge.score(["a", "bb", "a"]) == scorer.score(["a", "bb", "a"])
    assert judge.score(["bb", "", "a"]) == scorer.score(["bb", "", "a"])
    assert [["a", "bb"], [""]] == judge.batches[1::2]


def test_the_judge_is_not_called_for_nothing():
    judge = Asked()
    scorer = CachedScorer(judge, 10)
    scorer.score(["a"])

    assert [[0.5], []] == [scorer.score(["a"]), scorer.score([])]
    assert [["a"]] == judge.batches


def test_the_text_not_asked_for_the_longest_is_forgotten_first():
    judge = Asked()
    scorer = CachedScorer(judge, 2)
    for text in ("a", "b", "a", "c", "a", "b"):
        scorer.score([text])

    assert [["a"], ["b"], ["c"], ["b"]] == judge.batches


def test_a_batch_larger_than_the_memory_is_scored_whole():
    judge = Asked()
    texts = ["a" * length for length in range(5)]

    assert judge.score(texts) == CachedScorer(judge, 2).score(texts)


def test_texts_that_look_alike_are_not_taken_for_each_other():
    texts = ["é", "e\u0301", "a", "a ", "\ud800"]
    judge = Asked()
    CachedScorer(judge, 10).score(texts)

    assert [texts] == judge.batches


def test_a_judge_that_fails_is_asked_again():
    judge = Asked()
    scorer = CachedScorer(judge, 10)
    judge.is_reachable = False
    with pytest.raises(ScorerError, match="h··· 5··"):
        scorer.score(["a"])
    judge.is_reachable = True

    assert [0.5] == scorer.score(["a"])


def test_it_answers_for_the_judge():
    scorer = CachedScorer(Asked(), 1)

    assert ("asked 1", "elsewhere") == (scorer.version, scorer.works_on)


def test_the_default_judge_scores_the_same_to_the_last_bit_beside_other_texts():
    texts = ["you are an idiot", "so kind of you", "", "what the hell is this", "damn"] * 3
    alone = build("scorer", Choice(name="profanity"))
    scorer = CachedScorer(build("scorer", Choice(name="profanity")), 3)
    scorer.score(texts[3:4])

    assert alone.score(texts) == scorer.score(texts)


class Reading(Judge):
    """Judges by the length of the reply; none of an empty one."""

    version = "reading 1"
    works_on = "gpu"

    def __init__(self):
        super().__init__(Section())
        self.batches = []

    def judge(self, exchanges):
        self.batches.append(list(exchanges))
        return [
            Judgement(1.0 / len(own.reply), {"length": 0.5})
            if own.reply
            else Judgement.none("empty")
            for own in exchanges
        ]


PLACE = Conversation(Prompt.of("so"))
BASE = Exchange(PLACE, "why", "no")
OTHERS = [
    Exchange(PLACE, "why", "yes"),
    Exchange(PLACE, "what", "no"),
    Exchange(Conversation(Prompt.of("such")), "why", "no"),
    Exchange(Conversation(Prompt.of("so", {"goal": "be bad"})), "why", "no"),
    Exchange(PLACE.say(Message("user", "a"), Message("assistant", "b")), "why", "no"),
    Exchange(PLACE.say(Message("assistant", "a"), Message("user", "b")), "why", "no"),
]


def test_an_exchange_reaches_the_judge_once_whatever_part_of_it_differs():
    judge = Reading()
    found = CachedJudge(judge, 100)
    exchanges = [BASE, *OTHERS, Exchange(PLACE, "why", "")]
    once = found.judge([*exchanges, BASE])

    assert once == found.judge([*exchanges, BASE])
    assert [exchanges] == judge.batches
    assert "empty" == once[7].unjudged
    assert once == Reading().judge([*exchanges, BASE])


def test_the_exchange_not_asked_for_the_longest_is_forgotten_first():
    judge = Reading()
    found = CachedJudge(judge, 1)
    for exchange in (BASE, BASE, OTHERS[0], BASE):
        found.judge([exchange])

    assert [[BASE], [OTHERS[0]], [BASE]] == judge.batches


def test_judgements_of_another_version_are_not_reused():
    judge = Reading()
    found = CachedJudge(judge, 10)
    found.judge([BASE])
    judge.version = "reading 2"
    found.judge([BASE])

    assert [[BASE]] * 2 == judge.batches


def test_a_cache_is_of_the_kind_of_what_is_behind_it():
    judge, scorer = Reading(), Asked()

    assert (judge, scorer) == (with_cache(judge, 0), with_cache(scorer, 0))
    assert ("reading 1", "gpu") == (with_cache(judge, 1).version, with_cache(judge, 1).works_on)
    assert isinstance(with_cache(judge, 1), CachedJudge)
    assert isinstance(with_cache(scorer, 1), CachedScorer)
