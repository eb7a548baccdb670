"""What dialogues rely on in the templates; how they score is in ``test_dialogue.py``."""

import re

from each_row import each_row

from tasks.builtin import lines
from tasks.builtin.openers import MOODS
from tasks.builtin.words import SHARED, TOPICS

POLITE = {
    "friendly": lines.FRIENDLY,
    "neutral": lines.NEUTRAL,
    "sorry": lines.SORRY,
    **lines.PROVOCATIONS,
    **{f"calm {manner}": own for manner, own in lines.CALM.items()},
    **{f"calm and {mood}": own for mood, own in lines.CALM_IN_MOOD.items()},
    **{f"calm after {kind}": own for kind, own in lines.CALM_AFTER_KIND.items()},
}
ANGRY = {"angry": lines.ANGRY, **{f"angry {m}": own for m, own in lines.ANGRY_IN_MOOD.items()}}
KNOWN = {*SHARED, *TOPICS[0].slots(), *lines.ANGER_WORDS, "tail"}


def slots_of(template):
    return set(re.findall(r"\{(\w+)\}", template))


@each_row("name", [*POLITE, *ANGRY])
def test_a_template_is_a_sentence_about_the_topic_whose_slots_are_known(name):
    templates = (POLITE | ANGRY)[name]

    assert len(templates) == len(set(templates))
    for template in templates:
        assert slots_of(template) <= KNOWN
        assert template.count("{") == template.count("}") == len(re.findall(r"\{\w+\}", template))
        assert template[-1] in ".?!"


@each_row("name", POLITE)
def test_only_angry_lines_draw_an_insult(name):
    assert not any(slots_of(template) & set(lines.ANGER_WORDS) for template in POLITE[name])


@each_row("name", ANGRY)
def test_every_angry_line_draws_an_insult(name):
    assert all(slots_of(template) & set(lines.ANGER_WORDS) for template in ANGRY[name])


@each_row("word", [w for some in lines.ANGER_WORDS.values() for w in some])
def test_an_insult_is_said_in_anger_alone(word):
    said = [template for own in POLITE.values() for template in own]

    assert not any(re.search(rf"\b{word}\b", template) for template in (*said, *lines.TAILS))


def test_every_mood_has_one_sore_point_and_its_own_answers():
    assert set(MOODS) == set(lines.SORE_POINTS)
    assert set(lines.PROVOCATIONS) == set(lines.SORE_POINTS.values())
    assert len(MOODS) == len(lines.PROVOCATIONS)
    assert set(MOODS) == set(lines.CALM_IN_MOOD) == set(lines.ANGRY_IN_MOOD)


def test_there_is_a_calm_answer_to_every_remark():
    assert {"friendly", "neutral"} == set(lines.CALM)
    assert set(lines.PROVOCATIONS) == set(lines.CALM_AFTER_KIND)


def test_no_kind_of_provocation_is_richer_than_another():
    assert 1 == len({len(own) for own in lines.PROVOCATIONS.values()})
    assert all("{tail}" in line for own in lines.PROVOCATIONS.values() for line in own)


@each_row("mood", MOODS)
def test_calm_and_angry_answers_in_a_mood_show_it(mood):
    stems = {"proud": "proud|praised|I can", "worried": "worried|scared", "hopeful": "hope|dream"}
    own = (*lines.CALM_IN_MOOD[mood], *lines.ANGRY_IN_MOOD[mood])

    assert all(re.search(stems[mood], template) for template in own)


def test_a_tail_continues_with_the_sentence():
    assert all(re.match(r"(, | and )\S", tail) for tail in lines.TAILS if tail)
    assert all(slots_of(tail) <= set(SHARED) for tail in lines.TAILS)
