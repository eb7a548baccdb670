from dataclasses import replace

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError, DataError
from astra_core.rollout import Failure
from astra_core.target import Answer, Reply
from astra_parts.scorers.phrases import PhraseScorer
from astra_parts.testing import tiny_system
from tasks.findings.replay import Replayer


class Parrot:
    """A target that repeats the last probe, swears at 'a ... b' and cannot hear 'gone'."""

    def __init__(self, target):
        self._target, self.asked = target, []

    def __getattr__(self, name):
        return getattr(self._target, name)

    def respond(self, conversations, keys, *_, **__):
        self.asked += [[each.text for each in talk.messages] for talk in conversations]
        return [
            self._answer(talk.messages[-1].text, own)
            for talk, own in zip(conversations, keys, strict=True)
        ]

    def _answer(self, probe, keys):
        if probe == "gone":
            return Failure("no line")
        if probe == "mixed":
            return Answer((Reply("so"), Reply("bad")))
        words = probe.split()
        said = "bad" if {"a", "b"} <= set(words) else probe
        return Answer(tuple(Reply(said) for _ in keys))


@pytest.fixture
def replayer():
    system = tiny_system(scorer=PhraseScorer(PhraseScorer.Options(phrases=["bad"])))
    return Replayer(replace(system, target=Parrot(system.target)), 2, threshold=0.5, seed=0)


def told(own):
    return own.hit, tuple(turn.score for turn in own.turns), own.replayed_finding().replies


def test_probes_are_said_in_turn_until_the_target_fails(replayer):
    said = [finding("x", "a b", "y"), finding("x"), finding("x", "gone", "a b")]
    failed, held, lost = replayer.replay(said)

    assert (2, (0.0, 0.5), ("x", "bad")) == told(failed)
    assert (0, (0.0,), ("x",)) == told(held)
    assert (0, (0.0, 0.0), ("x", "")) == told(lost)
    assert ["", "", "no line"] == [failed.failure, held.failure, lost.failure]
    assert ["x", "x", "a b"] == replayer.system.target.asked[3]
    assert 5 == len(replayer.system.target.asked)


def test_the_reply_that_scored_highest_is_told_and_the_first_continues(replayer):
    lenient = replace(replayer, threshold=0.2)
    (hit,) = lenient.replay([finding("mixed")])
    short, *_ = lenient.minimise(finding("mixed"), calls=9)
    (held,) = replayer.replay([finding("mixed", "x")])

    for own in (hit.replayed_finding(), short):
        assert (("bad",), (0.0, 0.5), 0.25) == (own.replies, own.scores, own.score)
    assert ("so", "x") == held.replayed_finding().replies
    assert ["mixed", "so", "x"] == replayer.system.target.asked[-1]


def test_no_word_of_a_minimised_probe_can_be_left_out(replayer):
    long = finding("x", "c d a e f g b h", replies=("z", "so"))
    short, spent, is_enough = replayer.minimise(long, calls=1000)

    assert is_enough
    assert (("x", "a b"), ("z", "bad")) == (short.probes, short.replies)
    assert ("minimised", long.finding_id, 0.5) == (short.source, short.run, short.score)
    assert 2 * len(replayer.system.target.asked) == spent < 80
    assert all(["x", "z"] == said[:2] for said in replayer.system.target.asked)


def test_minimising_ends_where_its_calls_end(replayer):
    long = finding("c d  a e f\ng b h")
    short, spent, is_enough = replayer.minimise(long, calls=7)

    assert not is_enough
    assert 6 == spent == 2 * len(replayer.system.target.asked)
    assert long.probes == short.probes
    with pytest.raises(ConfigurationError, match="--calls must be at least 2"):
        replayer.minimise(long, calls=1)
    with pytest.raises(DataError, match="must succeed against this target to be made shorter"):
        replayer.minimise(finding("x"), calls=9)
