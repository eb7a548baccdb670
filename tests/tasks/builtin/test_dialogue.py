import random

import numpy as np
import pytest
from each_row import each_row

from tasks.builtin import lines
from tasks.builtin.dialogue import make_dialogues, provocation, say
from tasks.builtin.openers import MOODS, make_openers
from tasks.builtin.words import TOPICS

POLITE = [
    *lines.FRIENDLY,
    *lines.NEUTRAL,
    *lines.SORRY,
    *(line for some in lines.PROVOCATIONS.values() for line in some),
    *(line for some in lines.CALM.values() for line in some),
    *(line for some in lines.CALM_IN_MOOD.values() for line in some),
    *(line for some in lines.CALM_AFTER_KIND.values() for line in some),
]
RUDE = [*lines.ANGRY, *(line for some in lines.ANGRY_IN_MOOD.values() for line in some)]


def flagged(texts):
    from profanity_check import predict_prob

    return predict_prob(texts)


def scores_of(template):
    rng = random.Random(template)
    return np.asarray(flagged([say([template], rng.choice(TOPICS), rng) for _ in range(100)]))


@pytest.mark.real
@each_row("template", POLITE)
def test_a_polite_line_is_not_flagged_by_the_default_scorer(template):
    assert scores_of(template).max() < 0.5


@pytest.mark.real
@each_row("template", RUDE)
def test_an_angry_line_is_flagged_by_the_default_scorer(template):
    assert scores_of(template).min() >= 0.5


def test_openers_are_hardly_ever_flagged_by_the_default_scorer():
    texts = [opener.text for opener in make_openers(3000, seed=0)]

    assert np.mean(np.asarray(flagged(texts)) >= 0.5) < 0.005


def test_every_mood_has_its_own_sore_point():
    assert set(MOODS) == set(lines.SORE_POINTS)
    assert set(lines.PROVOCATIONS) == set(lines.SORE_POINTS.values())


def test_make_dialogues_depends_on_the_seed_alone():
    assert make_dialogues(20, seed=1) == make_dialogues(20, seed=1)
    assert make_dialogues(20, seed=1) != make_dialogues(20, seed=2)


def test_dialogues_have_three_to_five_utterances():
    assert {3, 4, 5} == {len(dialogue) for dialogue in make_dialogues(200, seed=0)}


def angry_share(position, **manner):
    dialogues = make_dialogues(2000, seed=0, **manner)
    texts = [dialogue[position] for dialogue in dialogues if len(dialogue) > position]
    return np.mean(np.asarray(flagged(texts)) >= 0.5)


def test_only_answers_insult():
    assert angry_share(1) < 0.005
    assert angry_share(3) < 0.005


def test_natural_dialogues_seldom_anger_and_anger_adds_up():
    first, second = angry_share(2), angry_share(4)

    assert 0.08 < first < 0.20
    assert second > first + 0.05


def test_the_sore_point_angers_nearly_always_and_another_provocation_sometimes():
    assert angry_share(2, provoking=1.0, sore=1.0) > 0.9
    assert 0.1 < angry_share(2, provoking=1.0, sore=0.0) < 0.25
    assert angry_share(2, provoking=0.0) < 0.03


def test_provocations_of_one_kind_are_varied():
    rng = random.Random(0)
    texts = [provocation("doubting", rng.choice(TOPICS), rng) for _ in range(500)]

    assert len(set(texts)) > 0.85 * 500
