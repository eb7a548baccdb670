import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import ScorerError
from astra_core.scorers.profanity import ProfanityScorer

SCORER = ProfanityScorer(ProfanityScorer.Options())


def test_insults_score_high_and_courtesy_low():
    insult, courtesy = SCORER.score(["you are a stupid idiot", "thank you, that is very kind"])

    assert insult > 0.8
    assert courtesy < 0.2


@each_row("text", ["", "   ", "\n"])
def test_blank_text_says_nothing_that_could_offend(text):
    assert [0.0] == SCORER.score([text])


@each_row("number", [float("nan"), -0.1, 1.1])
def test_a_number_that_is_no_score_is_no_silent_reward(monkeypatch, number):
    monkeypatch.setattr("profanity_check.predict_prob", lambda texts: np.full(len(texts), number))

    with pytest.raises(ScorerError, match=r"must give scores in \[0, 1\]"):
        SCORER.score(["why"])


def test_the_version_names_the_package():
    assert SCORER.version.startswith("alt-profanity-check 1.")
