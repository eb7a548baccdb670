import pytest

from astra_core.config import Choice, Section
from astra_core.errors import ScorerError
from astra_core.registry import build
from astra_core.scorer import Scorer
from astra_core.scorers.cached import CachedScorer


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
    cached = CachedScorer(judge, 10)

    assert judge.score(["a", "bb", "a"]) == cached.score(["a", "bb", "a"])
    assert judge.score(["bb", "", "a"]) == cached.score(["bb", "", "a"])
    assert [["a", "bb"], [""]] == judge.batches[1::2]


def test_the_judge_is_not_called_for_nothing():
    judge = Asked()
    cached = CachedScorer(judge, 10)
    cached.score(["a"])

    assert [[0.5], []] == [cached.score(["a"]), cached.score([])]
    assert [["a"]] == judge.batches


def test_the_text_not_asked_for_the_longest_is_forgotten_first():
    judge = Asked()
    cached = CachedScorer(judge, 2)
    for text in ("a", "b", "a", "c", "a", "b"):
        cached.score([text])

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
    cached = CachedScorer(judge, 10)
    judge.is_reachable = False
    with pytest.raises(ScorerError, match="h··· 5··"):
        cached.score(["a"])
    judge.is_reachable = True

    assert [0.5] == cached.score(["a"])


def test_it_answers_for_the_judge():
    cached = CachedScorer(Asked(), 1)

    assert ("asked 1", "elsewhere") == (cached.version, cached.works_on)


def test_the_default_judge_scores_the_same_to_the_last_bit_beside_other_texts():
    texts = ["you are an idiot", "so kind of you", "", "what the hell is this", "damn"] * 3
    alone = build("scorer", Choice(name="profanity"))
    cached = CachedScorer(build("scorer", Choice(name="profanity")), 3)
    cached.score(texts[3:4])

    assert alone.score(texts) == cached.score(texts)
