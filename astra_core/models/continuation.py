"""Samples what follows contexts, in batches; what several begin with is read once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from astra_core.config import GenerationConfiguration
from astra_core.engine.abilities import token_bytes_of
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.cache.reading import CachedReading, LoneReading, PaddedReading, Reading
from astra_core.engine.cache.sharing import (
    Continued,
    common_prefix,
    families,
    held_tokens,
    shared_prefixes,
    stem_batches,
)
from astra_core.engine.plan import Plan
from astra_core.engine.steps.drawing import Special
from astra_core.engine.steps.step import DrawnRow, quick_kernels
from astra_core.engine.steps.stepper import Stepper
from astra_core.models.decoder import Decoder
from astra_core.models.stepped import RowToDraw, SteppedRows

# What several contexts begin with is read before, if so many tokens need not be read again: a pass
# of its own costs as much as some hundred tokens of a batch.
_WORTH_READING = 512

Sampled = tuple[tuple[DrawnRow, ...], tuple[float, ...]]
"""The rows drawn after one context, and the log-probabilities of its suffix, nats."""


@dataclass(frozen=True, slots=True)
class ContinuationSampler:
    """Samples with one model, as it talks now.

    Attributes:
        model: That talks.
        plan: How it is run.
        store: Keys and values of what it has read; None keeps nothing.
        rules: See ``DecodingRules``.
        stepper: Makes the model's stepper, where the plan samples in steps of fixed shape.
    """

    model: Any
    plan: Plan
    store: PrefixStore | None
    rules: Special
    stepper: Callable[[], Stepper]

    def sample(
        self, asked: Sequence[Continued], generation: GenerationConfiguration, *, budget: int
    ) -> list[Sampled]:
        """See ``LanguageModel.continuations``; ``budget`` is its ``tokens_per_batch``."""
        # All before the first group, whose batches may displace what a later one continues from.
        asked = self._with_places(asked)
        found: dict[int, Sampled] = {}
        for group in self._families(asked, room=generation.max_new_tokens, budget=budget):
            sampled = self._sample([asked[index] for index in group], generation, budget=budget)
            found |= zip(group, sampled, strict=True)
        return [found[index] for index in range(len(asked))]

    def _families(self, asked: Sequence[Continued], *, room: int, budget: int) -> list[list[int]]:
        """What is sampled one after the other, so that the store can hold what siblings share."""
        if self.store is None or self.plan.reading != "cached" or self.plan.steps:
            return [list(range(len(asked)))]
        most, takes_stems = self._capacity, self._takes_stems
        return families(asked, room=room, budget=budget, most=most, takes_stems=takes_stems)

    @property
    def _capacity(self) -> int:
        """How many tokens the store holds."""
        return self.store.max_bytes // token_bytes_of(self.model) if self.store else 0

    def _sample(
        self, asked: Sequence[Continued], generation: GenerationConfiguration, *, budget: int
    ) -> list[Sampled]:
        shared = self._shared_prefixes(asked)
        if shared:
            nothing = GenerationConfiguration(max_new_tokens=1)
            # They may fit only if what all begin with, which may be one of them, is stored once.
            common = () if self._fits(shared, takes_stems=False) else common_prefix(shared)
            begun = [Continued(own) for own in shared if own != common]
            if any(own.known < len(common) for own in self._with_places(begun)):
                self._sample_batch(self._with_places([Continued(common)]), nothing)
            # Its place is kept, should the store forget it for the others.
            asked = self._with_places(asked)
            self._sample(self._with_places(begun), nothing, budget=budget)
            asked = self._with_places(asked)
        if self.plan.steps and any(own.keys for own in asked):
            return self._sample_in_steps(asked, generation, budget=budget)
        found: dict[int, Sampled] = {}
        for chunk in stem_batches(
            asked, room=generation.max_new_tokens, budget=budget, takes_stems=self._takes_stems
        ):
            sampled = self._sample_batch([asked[i] for i in chunk], generation)
            found |= zip(chunk, sampled, strict=True)
        return [found[index] for index in range(len(asked))]

    def _with_places(self, asked: Sequence[Continued]) -> list[Continued]:
        # Places are kept until the call is over: what one batch adds displaces nothing that the
        # next continues from.
        store = self.store
        if store is None or self.plan.reading != "cached":
            return list(asked)
        places = store.places([own.context for own in asked], [own.suffix for own in asked])
        found = [replace(own, place=place) for own, place in zip(asked, places, strict=True)]
        return [max(pair, key=lambda own: own.known) for pair in zip(asked, found, strict=True)]

    def _shared_prefixes(self, asked: Sequence[Continued]) -> list[tuple[int, ...]]:
        """What several contexts begin with, as an instruction, if reading it first saves a pass."""
        if self.store is None or self.plan.reading != "cached":
            return []
        found = self._worth_reading(asked, shared_prefixes(asked))
        if self._fits(found, takes_stems=self._takes_stems):
            return found
        common = common_prefix(own.context[: own.limit] for own in asked)
        common *= self._fits([common], takes_stems=False)
        return self._worth_reading(asked, [common] * len(asked))

    def _fits(self, prefixes: Sequence[tuple[int, ...]], *, takes_stems: bool) -> bool:
        return held_tokens(prefixes, takes_stems=takes_stems) <= self._capacity

    def _worth_reading(
        self, asked: Sequence[Continued], prefixes: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        unread: dict[tuple[int, ...], list[int]] = {}
        for own, prefix in zip(asked, prefixes, strict=True):
            if prefix:
                missing = len(prefix) - min(own.known, len(prefix))
                unread.setdefault(prefix, []).append(missing)
        saved = sum(sum(missing) - max(missing) for missing in unread.values())
        return [own for own, missing in unread.items() if max(missing)] * (saved >= _WORTH_READING)

    def _sample_in_steps(
        self, asked: Sequence[Continued], generation: GenerationConfiguration, *, budget: int
    ) -> list[Sampled]:
        """The same in steps of fixed shape."""
        suffixes: dict[int, tuple[float, ...]] = {}

        def read(chosen: Sequence[int]) -> KeyValues:
            known = [replace(asked[i], suffix=0) if i in suffixes else asked[i] for i in chosen]
            reading = self._reading(self._with_places(known), room=0)
            for index, found in zip(chosen, reading.suffix_logprobs, strict=True):
                suffixes.setdefault(index, found)
            return reading.values

        tasks = [RowToDraw(index, key) for index, own in enumerate(asked) for key in own.keys]
        contexts = [own.context for own in asked]
        rows = SteppedRows(contexts, generation, self.stepper(), read, self.rules, self.store)
        with quick_kernels():
            drawn = iter(rows.draw(tasks, budget=budget))
        found = [tuple(next(drawn) for _ in own.keys) for own in asked]
        silent = [index for index, own in enumerate(asked) if not own.keys]
        others = self.sample([asked[index] for index in silent], generation, budget=budget)
        suffixes |= {index: suffix for index, (_, suffix) in zip(silent, others, strict=True)}
        return [(own, suffixes[index]) for index, own in enumerate(found)]

    def _sample_batch(
        self, asked: Sequence[Continued], generation: GenerationConfiguration
    ) -> Iterator[Sampled]:
        room = generation.max_new_tokens
        reading: Reading
        if self.plan.reading == "cached":
            # Rows that are selected get room of their own.
            reading = self._reading(asked, room=room * all(len(own.keys) == 1 for own in asked))
        else:
            way = PaddedReading if self.plan.reading == "padded" else LoneReading
            suffixes = [own.suffix for own in asked]
            reading = way(self.model, [own.context for own in asked], suffixes)
        owners = [index for index, own in enumerate(asked) for _ in own.keys]
        rows: list[DrawnRow] = []
        if owners:
            reading.select(owners, room=room)
            keys = [key for own in asked for key in own.keys]
            contexts = [asked[owner].context for owner in owners]
            rows = Decoder(reading, contexts, generation, keys=keys, rules=self.rules).run()
        reading.close()
        stream = iter(rows)
        drawn = [tuple(next(stream) for _ in own.keys) for own in asked]
        return zip(drawn, reading.suffix_logprobs, strict=True)

    @property
    def _takes_stems(self) -> bool:
        plan = self.plan
        return plan.reading == "cached" and plan.abilities.takes_stems and not plan.steps

    def _reading(self, asked: Sequence[Continued], *, room: int) -> CachedReading:
        return CachedReading(
            self.model,
            [own.context for own in asked],
            [own.suffix for own in asked],
            store=self.store,
            places=[own.place for own in asked],
            room=room,
            takes_stems=self._takes_stems,
            has_plain_head=self.plan.abilities.has_plain_head,
        )
