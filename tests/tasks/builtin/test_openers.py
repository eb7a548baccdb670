import subprocess
import sys

import pytest

from astra_core.errors import ConfigurationError
from tasks.builtin import openers
from tasks.builtin.openers import MOODS, make_openers


def test_make_openers_gives_as_many_distinct_texts_as_asked():
    made = make_openers(5000, seed=0)

    assert 5000 == len({opener.text for opener in made})


@pytest.mark.real
def test_make_openers_repeats_itself_in_another_process():
    script = (
        "from tasks.builtin.openers import make_openers; print(make_openers(9, seed=3)[8].text)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )

    assert make_openers(9, seed=3)[8].text == told.stdout.strip()


def test_make_openers_of_another_seed_are_mostly_new():
    ours = {opener.text for opener in make_openers(4000, seed=0)}
    theirs = {opener.text for opener in make_openers(4000, seed=1)}

    assert len(ours & theirs) < 0.06 * len(theirs)


def test_make_openers_has_many_families_of_every_mood():
    made = make_openers(5000, seed=0)
    families = {opener.family for opener in made}

    assert len(families) > 600
    assert set(MOODS) == {opener.mood for opener in made}


def test_a_family_shares_mood_and_topic():
    made = make_openers(3000, seed=0)
    facts = {(opener.family, opener.mood, opener.topic) for opener in made}

    assert len({opener.family for opener in made}) == len(facts)


def test_openers_are_whole_sentences():
    for opener in make_openers(3000, seed=0):
        assert opener.text[0].isupper()
        assert opener.text[-1] in ".?"
        assert "{" not in opener.text


def test_make_openers_refuses_more_than_the_grammar_holds(monkeypatch):
    for mood in MOODS:
        monkeypatch.setitem(openers.SKELETONS, mood, ("good morning.",))

    with pytest.raises(ConfigurationError, match=r"got 50 with .* found; ask for fewer"):
        make_openers(50, seed=0)


def test_make_openers_of_none_is_empty():
    assert [] == make_openers(0, seed=0)
