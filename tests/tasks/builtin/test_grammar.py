import random

import pytest

from tasks.builtin.grammar import Topic, fill


def test_fill_draws_nested_slots_and_begins_with_a_capital():
    slots = {"a": ("the {b}",), "b": ("cat",)}

    assert "The cat sat." == fill("{a} sat.", slots, random.Random(0))


def test_fill_follows_its_random_numbers():
    slots = {"n": tuple("abcdefgh")}
    drawn = [fill("{n}{n}{n}{n}", slots, random.Random(seed)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_fill_refuses_an_unknown_slot():
    with pytest.raises(KeyError):
        fill("{nothing}", {}, random.Random(0))


def test_topic_fills_its_own_slots():
    topic = Topic("kite", "flying kites", "fly kites", ("strings",))
    text = fill("my {thing}: {doing}, to {do}, the {parts}", topic.slots(), random.Random(0))

    assert "My kite: flying kites, to fly kites, the strings" == text
