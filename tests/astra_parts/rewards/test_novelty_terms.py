import math
from functools import cache

import pytest
from each_row import each_row

from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rewards.known_words import KnownWords, KnownWordsOptions
from astra_parts.rewards.novelty_terms import (
    Diversity,
    EmbeddingNovelty,
    NgramNovelty,
    WellFormedMemory,
    WordNovelty,
)
from astra_parts.rewards.term import turns_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system


@cache
def shared_system():
    return tiny_system()


def said(*texts):
    return turns_of([tiny_graph(*(tiny_node(0.0, probe_text=text) for text in texts))])


def built(term, **options):
    found = term(term.Options(**options))
    found.prepare(shared_system(), tiny_prompts(4))
    return found


def test_the_novelty_of_ngrams_is_that_of_the_default_reward():
    texts = ("you are bad", "you are kind", "why", "you are bad")
    turns = said(*texts)
    term = built(NgramNovelty)
    reward = AdversarialReward(AdversarialReward.Options())
    graphs = [tiny_graph(*(turn.node for turn in turns))]
    for _ in range(2):
        (given,) = reward.assign(graphs)
        assert [node.novelty for node in given.children] == term.values(turns)
        term.remember(turns)
        reward.remember([given])


@each_row("kind", [NgramNovelty, WordNovelty])
def test_an_older_memory_fades_at_the_rate_of_the_decay(kind):
    found = {}
    for decay in (0.0, 1.0):
        term = built(kind, decay=decay)
        for text in ("you are calm", "what now"):
            term.remember(said(text))
        found[decay] = term.values(said("you are calm"))[0]

    assert {0.0: 1.0, 1.0: 1 / math.sqrt(2.0)} == pytest.approx(found)


def test_invented_words_are_not_paid():
    plain, known = built(NgramNovelty), built(WordNovelty)
    turns = said("you are calm", "you are gluzzle", "gluzzle frobbish")

    assert [1.0, 1.0, 1.0] == pytest.approx([plain.values([turn])[0] for turn in turns])
    values = [known.values([turn])[0] for turn in turns]
    # Of the seven n-grams of three words, three are free of the last one.
    assert [1.0, 3 / 7, 0.0] == pytest.approx(values)


def test_a_word_that_is_named_is_known():
    term = built(WordNovelty, extra_words=("gluzzle",))

    assert [1.0] == term.values(said("you are gluzzle"))


def test_a_text_without_words_is_not_novel():
    memory = WellFormedMemory(KnownWords(KnownWordsOptions()), decay=1.0)

    assert [0.0, 1.0] == memory.novelties(["...", "you are 42"])


def test_what_means_the_same_as_before_is_less_novel():
    term = built(EmbeddingNovelty)
    assert [1.0] == term.values(said("you are bad"))
    term.remember(said("you are bad"))
    same, other = (term.values(said(text))[0] for text in ("you are bad", "why now no yes"))

    assert same == pytest.approx(0.0, abs=1e-5)
    assert other > 0.05


def test_the_same_twice_in_one_experience_is_not_novel():
    term = built(EmbeddingNovelty)

    assert [0.0, 0.0] == pytest.approx(term.values(said("why now", "why now")), abs=1e-5)


def test_more_neighbours_make_a_repetition_more_novel():
    found = {}
    for count in (1, 3):
        term = built(EmbeddingNovelty, num_neighbours=count)
        term.remember(said("you are bad", "why now no yes", "they said so"))
        found[count] = term.values(said("you are bad"))[0]

    assert found[1] < found[3]


def test_the_memory_of_embeddings_is_bounded_and_forgets_the_oldest():
    term = built(EmbeddingNovelty, memory_size=2)
    for text in ("you are bad", "why now", "they said so"):
        term.remember(said(text))

    assert 2 == len(term.state()["memory"])
    assert term.values(said("you are bad"))[0] > 0.01
    assert [0.0] == pytest.approx(term.values(said("why now")), abs=1e-5)


def test_as_a_term_it_knows_the_words_of_the_prompts():
    turns = turns_of(
        [
            tiny_graph(
                tiny_node(0.0, score=1.0, probe_text="glorp zork"),
                tiny_node(0.0, score=1.0, probe_text="why now"),
            )
        ]
    )
    plain, told = (
        Diversity(Diversity.Options()),
        Diversity(Diversity.Options(extra_words=("glorp", "zork"))),
    )
    for term in (plain, told):
        term.prepare(tiny_system(), tiny_prompts(2))

    assert plain.values(turns) == pytest.approx([0.0, math.log(2)])
    assert told.values(turns) == pytest.approx([math.log(2)] * 2)
