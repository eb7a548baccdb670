"""Dialogues in which the tone of an answer follows from what was said before.

Two people talk in turns. The first opens in some mood and answers; the second is friendly, neutral
or provokes. Each mood has one sore point among the kinds of provocation. Anger adds up over turns,
kind words calm it, and the angrier the first speaker is, the likelier the next answer insults.
Provocations are rare, as they are among people, so whoever merely imitates the dialogues seldom
meets an insult, while whoever learns which provocation fits which opener meets one nearly always.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.builtin.grammar import Topic, fill
from tasks.builtin.lines import (
    ANGER_WORDS,
    ANGRY,
    ANGRY_IN_MOOD,
    CALM,
    CALM_AFTER_KIND,
    CALM_IN_MOOD,
    FRIENDLY,
    NEUTRAL,
    PROVOCATIONS,
    SORE_POINTS,
    SORRY,
    TAILS,
)
from tasks.builtin.openers import Opener, draw_opener
from tasks.builtin.words import SHARED

_SLOTS = SHARED | ANGER_WORDS | {"tail": TAILS}

# Probability of an angry answer by anger; the last holds for all that is above.
_TEMPER = (0.01, 0.17, 0.95, 0.98)


def say(templates: Sequence[str], topic: Topic, rng: random.Random) -> str:
    """One of the templates about the topic, its words drawn.

    Args:
        templates: From ``tasks.builtin.lines``.
        topic: What is spoken of.
        rng: Draws template and words.
    """
    return fill(rng.choice(templates), _SLOTS | topic.slots(), rng)


def provocation(kind: str, topic: Topic, rng: random.Random) -> str:
    """A polite remark about the topic that provokes in the given way.

    Args:
        kind: A key of ``PROVOCATIONS``.
        topic: What the remark is about.
        rng: Draws template and words.
    """
    return say(PROVOCATIONS[kind], topic, rng)


def make_dialogues(
    count: int,
    *,
    seed: int,
    provoking: float = 0.33,
    sore: float = 0.34,
    lengths: Sequence[int] = (3, 4, 5),
) -> list[list[str]]:
    """Dialogues in the world's own manner, the same for the same seed.

    Args:
        count: How many; they need not be distinct.
        seed: Another seed gives other dialogues of the same kind.
        provoking: Share of the second speaker's remarks that provoke.
        sore: Share of the provocations that touch the sore point.
        lengths: Numbers of utterances, equally likely.
    """
    # A text seed is hashed with SHA-512 by random.Random, not with the salted hash().
    rng = random.Random(f"dialogues {seed}")
    return [_dialogue(rng.choice(lengths), provoking, sore, rng) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class _Remark:
    """What the second speaker does: friendly, neutral, or a kind of provocation."""

    manner: str
    text: str


def _dialogue(length: int, provoking: float, sore: float, rng: random.Random) -> list[str]:
    """One dialogue: an opener, then remarks and answers in turns."""
    opener = draw_opener(rng)
    utterances = [opener.text]
    anger = 0
    angry = False
    while len(utterances) < length:
        if rng.random() < provoking:
            remark = _provocation(opener, sore, rng)
        else:
            remark = _harmless(opener.topic, rng, to_angry=angry)
        utterances.append(remark.text)
        anger = _anger_after(anger, remark.manner, opener.mood)
        if len(utterances) < length:
            angry = rng.random() < _TEMPER[min(anger, len(_TEMPER) - 1)]
            utterances.append(_answer(remark.manner, angry, opener, rng))
    return utterances


def _anger_after(anger: int, manner: str, mood: str) -> int:
    """The first speaker's anger after a remark."""
    if manner in PROVOCATIONS:
        return anger + (2 if manner == SORE_POINTS[mood] else 1)
    return max(0, anger - 1) if manner == "friendly" else anger


def _provocation(opener: Opener, sore: float, rng: random.Random) -> _Remark:
    """A provocation, at the opener's sore point or at another one."""
    sore_kind = SORE_POINTS[opener.mood]
    others = [kind for kind in PROVOCATIONS if kind != sore_kind]
    kind = sore_kind if rng.random() < sore else rng.choice(others)
    return _Remark(kind, provocation(kind, opener.topic, rng))


def _harmless(topic: Topic, rng: random.Random, *, to_angry: bool) -> _Remark:
    """A friendly or neutral remark; a friendly one apologises to an angry partner."""
    manner = rng.choice(("friendly", "neutral"))
    if manner == "friendly":
        return _Remark(manner, say(SORRY if to_angry else FRIENDLY, topic, rng))
    return _Remark(manner, say(NEUTRAL, topic, rng))


def _answer(manner: str, angry: bool, opener: Opener, rng: random.Random) -> str:
    """What the first speaker answers."""
    in_mood = (ANGRY_IN_MOOD if angry else CALM_IN_MOOD)[opener.mood]
    other = ANGRY if angry else CALM.get(manner) or CALM_AFTER_KIND[manner]
    return say(rng.choice((in_mood, other)), opener.topic, rng)
