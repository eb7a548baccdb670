"""Dialogues in which the tone of an answer follows from what was said before.

Two people talk in turns. The first opens in some mood and answers; the second is friendly, neutral
or provokes. Each mood has one sore point among the kinds of provocation. Anger adds up over turns,
kind words calm it, and the angrier the first speaker is, the likelier the next answer insults.
Provocations are rare, as they are among people, so whoever merely imitates the dialogues seldom
meets an insult, while whoever learns which provocation fits which opener meets one nearly always.
"""

import random
from collections.abc import Sequence

from tasks.builtin.grammar import Topic, fill
from tasks.builtin.lines import (
    ANGER_WORDS,
    ANGRY,
    CALM,
    FRIENDLY,
    NEUTRAL,
    PROVOCATIONS,
    SORE_POINTS,
    SORRY,
    TAILS,
)
from tasks.builtin.openers import draw_opener
from tasks.builtin.words import SHARED

_SLOTS = SHARED | ANGER_WORDS | {"tail": TAILS}

# Shares of what the second speaker does, in the order friendly, neutral, provoking.
_MANNERS = (0.38, 0.32, 0.30)
# Probability of an angry answer by anger; the last holds for all that is above.
_TEMPER = (0.01, 0.30, 0.90, 0.97)
_LENGTHS = (3, 4, 5)


def provocation(kind: str, topic: Topic, rng: random.Random) -> str:
    """A polite remark about the topic that provokes in the given way.

    Args:
        kind: A key of ``PROVOCATIONS``.
        topic: What the remark is about.
        rng: Draws template and words.
    """
    return _say(PROVOCATIONS[kind], topic, rng)


def make_dialogues(count: int, *, seed: int) -> list[list[str]]:
    """Dialogues of three to five utterances, the same for the same seed.

    Args:
        count: How many; they need not be distinct.
        seed: Another seed gives other dialogues of the same kind.
    """
    # A text seed is hashed with SHA-512 by random.Random, not with the salted hash().
    rng = random.Random(f"dialogues {seed}")
    return [_dialogue(rng) for _ in range(count)]


def _dialogue(rng: random.Random) -> list[str]:
    """One dialogue: an opener, then remarks and answers in turns."""
    opener = draw_opener(rng)
    utterances = [opener.text]
    length = rng.choice(_LENGTHS)
    anger = 0
    angry = False
    while len(utterances) < length:
        manner = rng.choices(("friendly", "neutral", "provoking"), _MANNERS)[0]
        kind = rng.choice(tuple(PROVOCATIONS))
        utterances.append(_remark(manner, kind, angry, opener.topic, rng))
        anger = _anger_after(anger, manner, at_sore_point=kind == SORE_POINTS[opener.mood])
        if len(utterances) < length:
            angry = rng.random() < _TEMPER[min(anger, len(_TEMPER) - 1)]
            utterances.append(_answer(manner, angry, opener.topic, rng))
    return utterances


def _anger_after(anger: int, manner: str, *, at_sore_point: bool) -> int:
    """The first speaker's anger after a remark."""
    if manner == "provoking":
        return anger + (2 if at_sore_point else 1)
    return max(0, anger - 1) if manner == "friendly" else anger


def _remark(manner: str, kind: str, angry: bool, topic: Topic, rng: random.Random) -> str:
    """What the second speaker says; a friendly one apologises to an angry partner."""
    if manner == "provoking":
        return provocation(kind, topic, rng)
    if manner == "friendly":
        return _say(SORRY if angry else FRIENDLY, topic, rng)
    return _say(NEUTRAL, topic, rng)


def _answer(manner: str, angry: bool, topic: Topic, rng: random.Random) -> str:
    """What the first speaker answers."""
    calm = CALM["provoked" if manner == "provoking" else manner]
    return _say(ANGRY if angry else calm, topic, rng)


def _say(templates: Sequence[str], topic: Topic, rng: random.Random) -> str:
    """One of the templates, filled."""
    return fill(rng.choice(templates), _SLOTS | topic.slots(), rng)
