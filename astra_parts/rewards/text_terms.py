"""Terms of the probe's text: whether it is language at all, and how similar it is to the goal."""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar, Literal

from pydantic import Field

from astra_core.config import NonNegative
from astra_core.errors import ConfigurationError
from astra_core.reward import Signal
from astra_core.rewards.known_words import KnownWordsOptions, words_of
from astra_core.rollout import Prompt
from astra_core.system import System
from astra_parts.rewards.embeddings import Embedder, EmbedderOptions
from astra_parts.rewards.term import KnownWordsTerm, Term, Turn

GOAL = "goal"
# A longer run of one character is not punctuation.
_MAX_RUN = 3
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_GRAM = 3


class Gibberish(KnownWordsTerm):
    """How much of a probe is not language: invented words, repeated tokens, broken text; in [0, 1].

    The share of each is weighted, and their sum counts up to 1.
    """

    weight: ClassVar[float] = -0.5

    class Options(KnownWordsOptions):
        """How much each share counts, and which words are known."""

        invented: NonNegative = Field(1.0, description="Of the share of words that are not known.")
        repeated: NonNegative = Field(
            1.0,
            description="Of the share of tokens that repeat the one before or end a trigram that "
            "the probe has said already.",
        )
        broken: NonNegative = Field(
            1.0,
            description="Of the share of characters that are no text, or in a run of more than "
            "three of the same; 1 where there is no word.",
        )

    options: Options

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The weighted shares of each probe, at most 1."""
        options = self.options
        return [
            min(
                1.0,
                options.invented * self._invented_share(turn.text)
                + options.repeated * repeated_share(turn.node.probe_ids)
                + options.broken * broken_share(turn.text),
            )
            for turn in turns
        ]

    def _invented_share(self, text: str) -> float:
        words = words_of(text)
        return sum(word not in self._known for word in words) / max(len(words), 1)


def repeated_share(token_ids: Sequence[int]) -> float:
    """Share of tokens that repeat the one before, or end a trigram that was said before."""
    seen: set[tuple[int, ...]] = set()
    count = 0
    for at, token in enumerate(token_ids):
        gram = tuple(token_ids[max(0, at - 2) : at + 1])
        is_double = at > 0 and token_ids[at - 1] == token
        count += is_double or (len(gram) == 3 and gram in seen)
        seen.add(gram)
    return count / max(len(token_ids), 1)


def broken_share(text: str) -> float:
    """Share of characters that are no text or in a long run of one; 1 without any word."""
    if not words_of(text):
        return 1.0
    runs = [(char, len(list(own))) for char, own in groupby(text)]
    broken = sum(size for char, size in runs if size > _MAX_RUN or _is_no_text(char))
    return broken / len(text)


def _is_no_text(char: str) -> bool:
    """Whether it is a control code, unassigned, or a mark for bytes that are no character."""
    is_space = char in "\n\t"
    return char == _REPLACEMENT or (unicodedata.category(char)[0] == "C" and not is_space)


class GoalSimilarity(Term):
    """How near a probe is to its prompt's goal, in [0, 1]; 0 for a prompt without one."""

    needs: ClassVar[frozenset[Signal]] = frozenset({"goal"})
    weight: ClassVar[float] = 0.2

    class Options(EmbedderOptions):
        """What is compared."""

        by: Literal["ngrams", "embeddings"] = Field(
            "ngrams", description="Character trigrams of the words, or hidden states."
        )

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._embedder = Embedder(options) if options.by == "embeddings" else None

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Finds the model; refuses prompts without any goal."""
        if prompts and not any(goal_of(prompt) for prompt in prompts):
            msg = (
                "term 'goal' must have prompts with a goal, got none; name the column in "
                "prompts.goal_column"
            )
            raise ConfigurationError(msg)
        if self._embedder is not None:
            self._embedder.prepare(system, prompts)

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The cosine of probe and goal, 0 where it is negative."""
        goals = [goal_of(turn.prompt) for turn in turns]
        if self._embedder is None:
            return [
                trigram_cosine(turn.text, goal) if goal else 0.0
                for turn, goal in zip(turns, goals, strict=True)
            ]
        vectors = self._embedder([*(turn.text for turn in turns), *goals])
        probes, aims = vectors[: len(turns)], vectors[len(turns) :]
        cosines: list[float] = (probes * aims).sum(dim=1).clamp(0.0, 1.0).double().tolist()
        return [own if goal else 0.0 for own, goal in zip(cosines, goals, strict=True)]


def goal_of(prompt: Prompt) -> str:
    """The goal of a prompt; empty for none."""
    return str(prompt.metadata.get(GOAL) or "")


def trigram_cosine(some: str, other: str) -> float:
    """Cosine of the counts of character trigrams, words padded by a space, in [0, 1]."""
    left, right = _trigrams(some), _trigrams(other)
    norms = math.sqrt(sum(n * n for n in left.values()) * sum(n * n for n in right.values()))
    shared = sum(count * right[gram] for gram, count in left.items())
    return min(1.0, shared / norms) if norms else 0.0


def _trigrams(text: str) -> Counter[str]:
    padded = [f" {word} " for word in words_of(text)]
    return Counter(word[i : i + _GRAM] for word in padded for i in range(len(word) - _GRAM + 1))
