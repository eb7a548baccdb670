"""Samples what follows contexts, in batches; what several begin with is read once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.cache.prefixes import Place, PrefixStore
from astra_core.engine.cache.reading import CachedReading, LoneReading, PaddedReading, Reading
from astra_core.engine.cache.sharing import Continued, best_prefixes, stem_batches
from astra_core.engine.plan import Plan
from astra_core.engine.steps.step import DrawnRow, quick_kernels
from astra_core.engine.steps.stepper import Special, Stepper
from astra_core.models.decoder import Decoder
from astra_core.models.stepped import RowToDraw, SteppedRows

# What several contexts begin with is read before, if it has so many tokens and so many need not be
# read again: a pass of its own costs as much as some hundred tokens of a batch.
_LEAST_SHARED, _WORTH_READING = 16, 512

Contexts = Sequence[Sequence[int]]
"""Token ids of each context, none empty."""


class Sampled(NamedTuple):
    """The rows drawn after one context, and the log-probabilities of its suffix, nats."""

    rows: tuple[DrawnRow, ...]
    suffix_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ContinuationSampler:
    """Samples with one model, as it talks now.

    Attributes:
        model: That talks.
        plan: How it is run.
        store: Keys and values of what it has read; None keeps nothing.
        rules: See ``Stepper.step``.
        stepper: Makes the model's stepper, where the plan samples in steps of fixed shape.
    """

    model: Any
    plan: Plan
    store: PrefixStore | None
    rules: Special
    stepper: Callable[[], Stepper]

    def sample(
        self,
        contexts: Contexts,
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        suffix_lengths: Sequence[int],
        budget: int,
    ) -> list[Sampled]:
        """See ``LanguageModel.continuations``; ``budget`` is its ``tokens_per_batch``."""
        places = self._places(contexts, suffix_lengths)
        shared = self._shared(contexts, suffix_lengths, places)
        if shared:
            nothing = GenerationConfiguration(max_new_tokens=1)
            zeros, silent = [0] * len(shared), [()] * len(shared)
            self.sample(shared, silent, nothing, suffix_lengths=zeros, budget=budget)
            places = self._places(contexts, suffix_lengths)
        if self.plan.steps and any(keys):
            return self._sample_in_steps(
                contexts, keys, generation, suffix_lengths=suffix_lengths, budget=budget
            )
        found: dict[int, Sampled] = {}
        sizes = [max(len(own), 1) for own in keys]
        lengths = map(len, contexts)
        for chunk in stem_batches(
            [Continued(*own) for own in zip(places, lengths, sizes, strict=True)],
            room=generation.max_new_tokens,
            budget=budget,
            takes_stems=self._takes_stems,
        ):
            own = [contexts[i] for i in chunk], [keys[i] for i in chunk]
            scored = [suffix_lengths[i] for i in chunk]
            known = [places[i] for i in chunk]
            sampled = self._sample_batch(*own, generation, suffix_lengths=scored, places=known)
            found |= zip(chunk, sampled, strict=True)
        return [found[index] for index in range(len(contexts))]

    def _places(self, contexts: Contexts, suffix_lengths: Sequence[int]) -> list[Place | None]:
        # Kept until the call is over: what one batch adds displaces nothing that the next continues
        # from.
        if self.store is None or self.plan.reading != "cached":
            return [None] * len(contexts)
        return self.store.places(contexts, suffix_lengths)

    def _shared(
        self, contexts: Contexts, suffix_lengths: Sequence[int], places: Sequence[Place | None]
    ) -> list[tuple[int, ...]]:
        """What several contexts begin with, as an instruction, if reading it first saves a pass."""
        if self.store is None or self.store.is_too_small or self.plan.reading != "cached":
            return []
        unread: dict[tuple[int, ...], list[int]] = {}
        best = best_prefixes(contexts, [1] * len(contexts))
        rows = zip(contexts, suffix_lengths, places, best, strict=True)
        for context, suffix, place, (shared, num_rows) in rows:
            length = min(shared, len(context) - 1 - suffix)
            if num_rows > 1 and length >= _LEAST_SHARED:
                missing = length - min(place[2] if place else 0, length)
                unread.setdefault(tuple(context[:length]), []).append(missing)
        saved = sum(sum(own) - max(own) for own in unread.values())
        return [own for own, missing in unread.items() if max(missing)] * (saved >= _WORTH_READING)

    def _sample_in_steps(
        self,
        contexts: Contexts,
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        suffix_lengths: Sequence[int],
        budget: int,
    ) -> list[Sampled]:
        """The same in steps of fixed shape."""
        suffixes: dict[int, tuple[float, ...]] = {}

        def read(chosen: Sequence[int]) -> KeyValues:
            asked = [0 if index in suffixes else suffix_lengths[index] for index in chosen]
            own = [contexts[index] for index in chosen]
            reading = CachedReading(
                self.model, own, asked, store=self.store, places=self._places(own, asked), room=0
            )
            for index, found in zip(chosen, reading.suffix_logprobs, strict=True):
                suffixes.setdefault(index, found)
            return reading.values

        tasks = [RowToDraw(index, key) for index, own in enumerate(keys) for key in own]
        rows = SteppedRows(contexts, generation, self.stepper(), read, self.rules, self.store)
        with quick_kernels():
            drawn = iter(rows.drawn(tasks, budget=budget))
        found = [tuple(next(drawn) for _ in own) for own in keys]
        silent = [index for index, own in enumerate(keys) if not own]
        others = self.sample(
            [contexts[index] for index in silent],
            [()] * len(silent),
            generation,
            suffix_lengths=[suffix_lengths[index] for index in silent],
            budget=budget,
        )
        suffixes |= {i: one.suffix_logprobs for i, one in zip(silent, others, strict=True)}
        return [Sampled(own, suffixes[index]) for index, own in enumerate(found)]

    def _sample_batch(
        self,
        contexts: Contexts,
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        suffix_lengths: Sequence[int],
        places: Sequence[Place | None],
    ) -> Iterator[Sampled]:
        # Rows that are selected get room of their own.
        is_plain = all(len(own) == 1 for own in keys)
        room = generation.max_new_tokens if is_plain else 0
        reading = self._reading(contexts, suffix_lengths, places, room=room)
        owners = [index for index, own in enumerate(keys) for _ in own]
        rows: list[DrawnRow] = []
        if owners:
            reading.select(owners, room=generation.max_new_tokens)
            end_ids, barred, spare = self.rules
            decoder = Decoder(
                reading,
                [contexts[owner] for owner in owners],
                generation,
                keys=[key for own in keys for key in own],
                end_ids=end_ids,
                barred=barred,
                spare=spare,
            )
            rows = decoder.run()
        reading.close()
        stream = iter(rows)
        drawn = [tuple(next(stream) for _ in own) for own in keys]
        return map(Sampled, drawn, reading.suffix_logprobs)

    @property
    def _takes_stems(self) -> bool:
        plan = self.plan
        return plan.reading == "cached" and plan.abilities.takes_stems and not plan.steps

    def _reading(
        self,
        contexts: Contexts,
        suffix_lengths: Sequence[int],
        places: Sequence[Place | None],
        *,
        room: int,
    ) -> Reading:
        if self.plan.reading == "cached":
            return CachedReading(
                self.model,
                contexts,
                suffix_lengths,
                store=self.store,
                places=places,
                room=room,
                takes_stems=self._takes_stems,
                has_plain_head=self.plan.abilities.has_plain_head,
            )
        way = PaddedReading if self.plan.reading == "padded" else LoneReading
        return way(self.model, contexts, suffix_lengths)
