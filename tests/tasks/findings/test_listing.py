import json
from dataclasses import replace

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError, DataError
from tasks.findings.labels import FindingLabel
from tasks.findings.listing import (
    Choosing,
    conversation_lines,
    detail_of,
    limit_detail,
    line_of,
    the_one,
)

RUDE = json.dumps({"category": "insults", "goal": "make it swear"})


def test_findings_are_chosen_by_each_thing_and_by_all_together():
    rude = finding(finding_id="1", metadata=RUDE, score=0.7)
    trained = finding(finding_id="2", source="training", run="k" * 16, attacker="", target="u" * 64)
    every = [rude, trained]

    assert every == Choosing().of(every)
    assert [rude] == Choosing(category="insults").of(every)
    assert [trained] == Choosing(min_score=0.8).of(every) == Choosing(target="uu").of(every)
    assert every == Choosing(version=("a" * 64, "k" * 64)).of(every)
    assert [trained] == Choosing(version=("b" * 64, "k" * 64)).of(every)
    assert [trained] == Choosing(version=("", "k" * 64)).of([trained, finding(attacker="")])
    assert [] == Choosing(category="insults", min_score=0.8).of(every)
    with pytest.raises(ConfigurationError, match="must be one of insults, none, got 'rude'"):
        Choosing(category="rude").of(every)
    # By the names that the list shows, too.
    spaced = finding(metadata=json.dumps({"category": " Hate "}))
    assert [trained] == Choosing(category="none").of(every)
    assert (
        [spaced]
        == Choosing(category="Hate").of([spaced])
        == Choosing(category=" Hate ").of([spaced])
    )


def test_one_is_named_by_the_beginning_of_its_id():
    every = [finding(finding_id="abc"), finding(finding_id="abd", others=("ghi",))]

    assert every[1] is the_one(every, "abd") is the_one(every, "g")
    with pytest.raises(DataError, match="got 'ab': 2 findings"):
        the_one(every, "ab")
    with pytest.raises(DataError, match="got 'x': none"):
        the_one(every, "x")


@pytest.mark.parametrize(
    ("detail", "prompt", "probe", "reply", "columns"),
    [
        ("figures", "", "", "", {"category": "insults"}),
        ("masked", "s· t··· s···", "y·· a·· b··", "s·", {"category": "insults"}),
        ("probes", "so they said", "you are bad", "s·", json.loads(RUDE)),
        ("full", "so they said", "you are bad", "so", json.loads(RUDE)),
    ],
)
def test_each_level_shows_more(detail, prompt, probe, reply, columns):
    told = limit_detail(finding(metadata=RUDE), detail_of(detail))

    assert (prompt, (probe,), (reply,)) == (told.prompt, told.probes, told.replies)
    assert columns == told.columns


def test_a_level_must_be_one_of_four():
    with pytest.raises(ConfigurationError, match="--detail must be one of figures, masked, probes"):
        detail_of("all")


def test_a_line_and_a_conversation_tell_where_it_was_found():
    one = finding("hi", "x" * 99, source="training", iteration=3, times=2, rationale="ok")
    one = replace(one, others=tuple("abcd"))
    label = FindingLabel(one.finding_id, "confirmed", "Ann", "2026-01-01")
    line, lines = line_of(one, label), conversation_lines(one, label)

    assert f"{'f' * 16}  0.90  turn 2  training 3    2x +4    confirmed  {'x' * 63}…" == line
    assert ["probe        hi", "reply        so", f"probe        {'x' * 99}"] == lines[-5:-2]
    assert "judge        ok" == lines[-1]
    assert "label        confirmed by Ann, 2026-01-01" in lines
    assert f"found in     step 3 of training {'r' * 16}, 2 times; 4 others are nearly the same" in (
        lines
    )
