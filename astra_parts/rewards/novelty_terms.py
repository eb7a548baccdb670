"""Terms of novelty: how much of a probe was not said before, in words or in meaning."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from astra_core.config import Count, Probability, Section
from astra_core.rewards.diversity import rarities
from astra_core.rewards.known_words import KnownWords, KnownWordsOptions
from astra_core.rewards.novelty import NoveltyMemory, ngrams_of
from astra_core.rollout import Prompt
from astra_core.system import System
from astra_parts.rewards.embeddings import Embedder, EmbedderOptions
from astra_parts.rewards.term import KnownWordsTerm, Term, Turn

_ENDS = frozenset({"^", "$"})


class _CountedTerm(Term):
    """Novelty by a memory of n-grams; those of one experience count against each other."""

    weight: ClassVar[float] = 0.2
    is_novelty: ClassVar[bool] = True
    memory: NoveltyMemory

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The novelty of each probe; those of one experience count against each other."""
        return self.memory.novelties([turn.text for turn in turns])

    def remember(self, turns: Sequence[Turn]) -> None:
        """Adds the probes to the memory."""
        self.memory.add([turn.text for turn in turns])

    def state(self) -> Mapping[str, Tensor]:
        """The counts of n-grams."""
        return {"counts": self.memory.counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores the counts."""
        self.memory.counts.copy_(state["counts"])


class NgramNovelty(_CountedTerm):
    """How rare a probe's word 2- and 3-grams are, in (0, 1]; the novelty of the default reward."""

    class Options(Section):
        """How long it remembers."""

        decay: Probability = Field(0.98, description="Share of the memory kept per experience.")

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.memory = NoveltyMemory(decay=options.decay)


class WellFormedMemory(NoveltyMemory):
    """Counts only n-grams of known words; all others add nothing to a text's novelty."""

    def __init__(self, known: KnownWords, *, decay: float) -> None:
        super().__init__(decay=decay)
        self._known = known

    def novelties(self, texts: Sequence[str]) -> list[float]:
        """One number in [0, 1] per text: a share of all of its n-grams, invented ones included."""
        shares = [len(self.grams(text)) / len(ngrams_of(text)) for text in texts]
        kept = super().novelties([text for text, own in zip(texts, shares, strict=True) if own])
        found = iter(kept)
        return [own * next(found) if own else 0.0 for own in shares]

    def grams(self, text: str) -> list[str]:
        """The n-grams of known words and numbers; none of a text without words."""
        grams = ngrams_of(text)
        return [] if grams == ["^ $"] else [gram for gram in grams if self._is_known(gram)]

    def _is_known(self, gram: str) -> bool:
        return all(
            word in _ENDS or word.isdecimal() or word in self._known for word in gram.split(" ")
        )


class WordNovelty(KnownWordsTerm, _CountedTerm):
    """Like ``novelty``, but only of n-grams of known words: invented words do not raise it."""

    class Options(KnownWordsOptions):
        """How long it remembers, and which words are known."""

        decay: Probability = Field(0.98, description="Share of the memory kept per experience.")

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.memory = WellFormedMemory(self._known, decay=options.decay)


class EmbeddingNovelty(Term):
    """One minus the cosine to the nearest earlier probes, in [0, 1]; the memory is bounded.

    Sources:
        The cosine as novelty: Hong et al., arXiv:2402.19464 (a mean over all earlier probes). The
        nearest ones instead: Zhao et al., arXiv:2405.19026.
    """

    weight: ClassVar[float] = 0.2
    is_novelty: ClassVar[bool] = True

    class Options(EmbedderOptions):
        """Whose embeddings, compared with how many."""

        num_neighbours: Count = Field(1, description="The nearest ones whose cosines are averaged.")
        memory_size: Count = Field(
            4096, description="Probes that are remembered; the oldest is forgotten first."
        )

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.embedder = Embedder(options)
        self.memory = torch.zeros(0, 0)

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Finds the model that gives the hidden states."""
        self.embedder.prepare(system, prompts)

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The novelty of each probe; those of one experience count against each other."""
        vectors = self.embedder([turn.text for turn in turns])
        if not len(vectors):
            return []
        among = vectors @ vectors.T
        among.fill_diagonal_(-1.0)
        known = vectors @ self.memory.T if len(self.memory) else vectors[:, :0]
        cosines = torch.cat([known, among], dim=1)
        nearest = min(self.options.num_neighbours, len(self.memory) + len(vectors) - 1)
        if nearest == 0:
            return [1.0] * len(turns)
        mean = cosines.topk(nearest, dim=1).values.mean(dim=1)
        found: list[float] = (1.0 - mean).clamp(0.0, 1.0).double().tolist()
        return found

    def remember(self, turns: Sequence[Turn]) -> None:
        """Adds the probes to the memory and forgets the oldest beyond its size."""
        vectors = self.embedder([turn.text for turn in turns])
        if len(vectors):
            before = self.memory if len(self.memory) else vectors[:0]
            self.memory = torch.cat([before, vectors])[-self.options.memory_size :].clone()

    def state(self) -> Mapping[str, Tensor]:
        """The remembered vectors, oldest first."""
        return {"memory": self.memory}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores the remembered vectors."""
        self.memory = state["memory"].clone()


class Diversity(KnownWordsTerm):
    """``rarities`` as a term: nats by which a probe that scores is rare among those that do."""

    weight: ClassVar[float] = 0.5

    class Options(KnownWordsOptions):
        """Which words are known."""

    options: Options

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The rarity of each probe, 0 for a score of 0; the turns count against each other."""
        return rarities(
            [turn.text for turn in turns], [turn.node.score for turn in turns], self._known
        )
