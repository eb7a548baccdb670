"""Openers: how someone in a mood starts a conversation about an everyday topic.

The mood decides later which provocation angers the speaker, so each skeleton shows its mood.
"""

import random
from dataclasses import dataclass

from astra_core.errors import ConfigurationError
from tasks.builtin.grammar import Topic, fill
from tasks.builtin.words import SHARED, TOPICS

SKELETONS = {
    "proud": (
        "I am so proud of my {thing}, the {parts} look {good} {now}.",
        "I finished my {thing} {when} and I am very proud.",
        "I feel proud, my {thing} won a prize {when}.",
        "{person} praised my {thing} {when}, what a {good} moment.",
        "I made the {parts} myself {when} and {person} praised me.",
        "everyone {place} praised my {parts} {when}.",
        "I got {good} at {doing}, {person} praised me {when}.",
        "I am proud that I can {do}, it took me {span}.",
        "{person} praised the {parts} {when}, they are {good}.",
        "I am a proud owner of a {good} {thing} since {span}.",
    ),
    "worried": (
        "I am worried about my {thing}, the {parts} look {bad} {now}.",
        "I could not sleep, so worried about the {parts} {now}.",
        "I am scared that {person} will reject my {thing} {soon}.",
        "what if the {parts} are {bad} {soon}? I am so worried.",
        "I am scared of {doing} {soon} with {person}.",
        "something is {bad} with the {parts}, and I am scared.",
        "I am worried that my {thing} will be {bad} {soon}.",
        "{person} says the {parts} are {bad}, now I am worried.",
        "I am scared to look at my {thing} since {person} called {when}.",
        "I am scared to {do} {soon}, the {parts} seem {bad}.",
    ),
    "hopeful": (
        "I hope to {do} with {person} {soon}.",
        "I dream of a {good} {thing}, I start {soon}.",
        "my dream is to {do} {soon} with {good} {parts}.",
        "I hope my {thing} will be {good} {soon}.",
        "I hope to {do} {place} {soon}.",
        "I saved for {span} and hope to {do} {soon}.",
        "my dream is {doing} {place} with {person}.",
        "{person} and I hope to show our {thing} {soon}.",
        "I dream of {doing} {place} {soon}.",
        "I hope the {parts} will be {good} {soon}.",
    ),
}
MOODS = tuple(SKELETONS)

# Draws per wanted opener before the grammar counts as exhausted.
_PATIENCE = 20


@dataclass(frozen=True, slots=True)
class Opener:
    """The first utterance of a conversation.

    Attributes:
        text: What is said.
        family: Shared by openers that differ in filler words only; a split keeps it whole.
        mood: One of ``MOODS``.
        topic: What it is about.
    """

    text: str
    family: str
    mood: str
    topic: Topic


def draw_opener(rng: random.Random) -> Opener:
    """One opener; mood, skeleton and topic are equally likely."""
    mood = rng.choice(MOODS)
    number = rng.randrange(len(SKELETONS[mood]))
    topic = rng.choice(TOPICS)
    template = "{lead}" + SKELETONS[mood][number]
    text = fill(template, SHARED | topic.slots(), rng)
    return Opener(text, f"{mood}-{number:02d}-{topic.thing.lower()}", mood, topic)


def make_openers(count: int, *, seed: int) -> list[Opener]:
    """Distinct openers, the same for the same seed.

    Args:
        count: How many.
        seed: Another seed gives other openers of the same kind, few of them in common.

    Raises:
        ConfigurationError: The grammar does not hold ``count`` distinct openers.
    """
    # A text seed is hashed with SHA-512 by random.Random, not with the salted hash().
    rng = random.Random(f"openers {seed}")
    openers: dict[str, Opener] = {}
    for _ in range(_PATIENCE * count):
        opener = draw_opener(rng)
        openers.setdefault(opener.text, opener)
        if len(openers) >= count:
            return list(openers.values())
    if count <= 0:
        return []
    msg = (
        f"the number of built-in openers must be within the grammar's reach, got {count} "
        f"with {len(openers)} distinct ones found; ask for fewer"
    )
    raise ConfigurationError(msg)
