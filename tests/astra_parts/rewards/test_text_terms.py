from functools import cache

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.rollout import Prompt
from astra_parts.rewards.term import turns_of
from astra_parts.rewards.text_terms import (
    Gibberish,
    GoalSimilarity,
    broken_share,
    repeated_share,
    trigram_cosine,
)
from astra_parts.testing import tiny_graph, tiny_node, tiny_system


@cache
def shared_system():
    return tiny_system()


GOAL = Prompt.of("you are late", {"goal": "bad and worse"})


def value_of(term, text, *, prompt=GOAL, probe_ids=(2, 3, 0), **options):
    found = term(term.Options(**options))
    found.prepare(shared_system(), [GOAL])
    node = tiny_node(0.0, probe_text=text, probe_ids=probe_ids)
    (value,) = found.values(turns_of([tiny_graph(node, prompt=prompt)]))
    return value


def test_language_is_no_gibberish():
    assert 0.0 == value_of(Gibberish, "you look very calm today.")


@each_row(
    ("text", "ids", "expected"),
    [
        ("you look gluzzle today", (2, 3, 4, 0), 0.25),
        ("you look you look", (2, 3, 2, 3), 0.0),
        ("you look you look you look", (2, 3, 2, 3, 2, 3), 2 / 6),
        ("you you you you", (2, 2, 2, 2), 0.75),
        ("......", (5, 6, 7), 1.0),
        ("", (0,), 1.0),
        ("you look \N{REPLACEMENT CHARACTER}", (2, 3, 4), 0.1),
    ],
)
def test_invented_words_repeated_tokens_and_broken_text_count_by_their_share(text, ids, expected):
    assert expected == pytest.approx(value_of(Gibberish, text, probe_ids=ids))


@each_row(
    ("option", "text", "ids"),
    [
        ("invented", "you look gluzzle today", (2, 3, 4, 0)),
        ("repeated", "you you look well", (2, 2, 3, 4)),
        ("broken", "you look!!!!!!", (2, 3, 4)),
    ],
)
def test_each_share_counts_as_much_as_its_option_says(option, text, ids):
    whole = value_of(Gibberish, text, probe_ids=ids)

    assert 0.0 == value_of(Gibberish, text, probe_ids=ids, **{option: 0.0})
    assert whole / 2 == pytest.approx(value_of(Gibberish, text, probe_ids=ids, **{option: 0.5}))


def test_words_that_are_named_or_in_the_vocabulary_are_no_invention():
    assert 0.0 == value_of(Gibberish, "you look gluzzle", extra_words=("gluzzle",))
    # The tiny tokenizer knows "worse", but not the prompts and the grammar.
    system_word = "they said always"
    assert 0.0 < value_of(Gibberish, "kinder always", vocabulary="unused")
    assert 0.0 == value_of(Gibberish, system_word, vocabulary="used")


def test_shares_of_nothing():
    assert 0.0 == repeated_share(())
    assert 1.0 == broken_share("")
    assert 0.0 == broken_share("why...")


@each_row("by", ["ngrams", "embeddings"])
def test_a_probe_nearer_to_the_goal_counts_more(by):
    same, near, far = (
        value_of(GoalSimilarity, text, by=by) for text in ("bad and worse", "so bad", "why")
    )

    assert same == pytest.approx(1.0, abs=1e-5)
    assert same > near >= 0.0
    assert same > far >= 0.0


def test_a_prompt_without_a_goal_gives_nothing():
    for by in ("ngrams", "embeddings"):
        assert 0.0 == value_of(GoalSimilarity, "so bad", prompt=Prompt.of("why"), by=by)


def test_prompts_of_which_none_has_a_goal_are_refused():
    term = GoalSimilarity(GoalSimilarity.Options())
    with pytest.raises(ConfigurationError, match="must have prompts with a goal, got none"):
        term.prepare(shared_system(), [Prompt.of("why")])


def test_the_cosine_of_trigrams_by_hand():
    # " ab ", " ab ": two trigrams each, one of two shared with " abc ".
    assert 1.0 == pytest.approx(trigram_cosine("ab", "AB!"))
    assert 1 / 6**0.5 == pytest.approx(trigram_cosine("ab", "abc"))
    assert 0.0 == trigram_cosine("ab", "")
