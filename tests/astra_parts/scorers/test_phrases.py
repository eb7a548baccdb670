import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_parts.scorers.phrases import PhraseScorer


def scores(phrases, *texts):
    return PhraseScorer(PhraseScorer.Options(phrases=phrases)).score(texts)


def test_each_occurrence_halves_what_is_left_to_one():
    assert [0.0, 0.5, 0.75, 0.875] == scores(
        ("bad", "worse"), "so kind", "bad", "bad or worse", "bad bad bad"
    )


@each_row(
    ("text", "expected"), [("BAD", 0.5), ("badly", 0.0), ("a bad, bad one", 0.75), ("not-bad", 0.5)]
)
def test_whole_words_count_and_case_does_not(text, expected):
    assert [expected] == scores(("bad",), text)


@each_row("phrase", ["you are bad", "a.b", "c++", "!!", "(x)"])
def test_a_phrase_is_taken_literally(phrase):
    assert [0.5, 0.0] == scores((phrase,), f"so {phrase} now", "nothing of it axb c x")


@each_row("phrases", [(), ("",), ("bad", " ")])
def test_there_must_be_something_to_look_for(phrases):
    with pytest.raises(ConfigurationError):
        PhraseScorer.Options(phrases=phrases)


def test_the_version_names_the_list():
    first, same, other = (
        PhraseScorer(PhraseScorer.Options(phrases=p)).version
        for p in (("bad",), ("bad",), ("worse",))
    )

    assert first == same != other
