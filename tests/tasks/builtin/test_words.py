"""The word lists, by what templates rely on."""

import re

from each_row import each_row

from tasks.builtin.words import SHARED, TOPICS

TOPIC_IDS = [topic.thing for topic in TOPICS]


def test_topics_are_of_different_things():
    for form in ("thing", "doing", "do"):
        assert len(TOPICS) == len({getattr(topic, form) for topic in TOPICS})


@each_row("topic", TOPICS)
def test_a_topic_names_one_activity_in_two_forms(topic):
    gerund, *rest = topic.doing.split()
    verb, *same = topic.do.split()

    assert rest == same
    # "dancing" is of "dance", "running" of "run".
    assert gerund in {f"{stem}ing" for stem in (verb, verb.rstrip("e"), verb + verb[-1])}


@each_row("topic", TOPICS)
def test_a_topic_has_four_parts_of_one_word_in_the_plural(topic):
    assert 4 == len(set(topic.parts))
    assert all(re.fullmatch(r"[a-z]+s", part) for part in topic.parts)
    assert topic.thing not in topic.parts


@each_row("slot", SHARED)
def test_a_word_list_has_choices_that_hold_no_slot(slot):
    texts = [text for text in SHARED[slot] if text]

    # A text without a lead is likelier than any lead; every other choice stands once.
    assert len(texts) == len(set(texts)) >= 7
    assert ("" in SHARED[slot]) == (slot == "lead")
    assert all(text.isascii() and not set(text) & set("{}") for text in texts)


def test_a_lead_joins_on_to_what_follows():
    assert all(lead.endswith(", ") for lead in SHARED["lead"] if lead)


def test_no_list_hides_the_slots_of_a_topic():
    assert not set(SHARED) & set(TOPICS[0].slots())
