import math

import pytest
import torch

from astra_core.rewards.novelty import NoveltyMemory

TEXTS = ["you are bad", "you are kind", "", "why", "You are BAD!"]


def test_what_was_never_said_is_wholly_novel():
    assert [1.0] == NoveltyMemory(decay=1.0).novelties(["you are bad"])


def test_novelty_falls_with_the_square_root_of_how_often_a_thing_was_said():
    memory = NoveltyMemory(decay=1.0)
    found = []
    for _ in range(4):
        found += memory.novelties(["you are bad"])
        memory.add(["you are bad"])

    assert [1 / math.sqrt(n) for n in (1, 2, 3, 4)] == pytest.approx(found)


def test_novelty_lies_between_nothing_and_one_and_does_not_depend_on_order():
    memory = NoveltyMemory(decay=0.9)
    memory.add(TEXTS)
    found = memory.novelties(TEXTS)

    assert all(0.0 < value <= 1.0 for value in found)
    assert found == pytest.approx(memory.novelties(TEXTS[::-1])[::-1])


def test_a_text_that_shares_some_words_is_less_novel_than_one_that_shares_none():
    memory = NoveltyMemory(decay=1.0)
    memory.add(["you are bad"])
    same, similar, other = (
        memory.novelties([text])[0] for text in ("you are bad", "you are kind", "why not now")
    )

    assert same < similar < other == 1.0


def test_spelling_and_punctuation_are_no_novelty():
    memory = NoveltyMemory(decay=1.0)
    memory.add(["you are bad"])

    assert memory.novelties(["you are bad"]) == memory.novelties(["You ARE... bad!"])


def test_the_same_words_in_another_order_are_new():
    memory = NoveltyMemory(decay=1.0)
    memory.add(["you are bad"])

    assert memory.novelties(["bad are you"])[0] > memory.novelties(["you are bad"])[0]


def test_asking_changes_nothing():
    memory = NoveltyMemory(decay=0.5)
    memory.add(TEXTS)
    before = memory.counts.clone()
    memory.novelties(TEXTS)

    assert torch.equal(before, memory.counts)


def test_memories_fade():
    memory = NoveltyMemory(decay=0.5)
    memory.add(["why"])
    total = float(memory.counts.sum())
    memory.add([])

    assert total / 2 == float(memory.counts.sum())


def test_counts_are_the_same_in_every_process():
    # Python's own hashes are others in each.
    memory = NoveltyMemory(decay=1.0)
    memory.add(["you are bad"])

    counted = [6204, 11102, 15066, 26132, 33551, 34957, 57561]
    assert counted == memory.counts.nonzero()[:, 0].tolist()
