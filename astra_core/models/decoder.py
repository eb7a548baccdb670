"""The loop that draws one token per row and step."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.reading import Reading
from astra_core.engine.steps.drawing import Special
from astra_core.engine.steps.step import DrawnRow
from astra_core.models.decoding import SHIFT, sample
from astra_core.seeding import uniforms


class Decoder:
    """Samples one token per row and step until every row has ended; ended rows are dropped.

    Args:
        rules: The ids that end an utterance; those that are never drawn and have no likelihood; an
            id that has one, but where it is drawn, another is drawn instead.
    """

    # Dropping moves rows of the cache, so it happens once this share of the rows has ended.
    _DROP_SHARE = 0.1

    def __init__(
        self,
        reading: Reading,
        contexts: Sequence[Sequence[int]],
        generation: GenerationConfiguration,
        *,
        keys: Sequence[bytes],
        rules: Special,
    ) -> None:
        end_ids, barred, self._spare = rules
        device = reading.logits.device
        self._reading = reading
        self._generation = generation
        self._uniforms = torch.from_numpy(uniforms(keys, generation.max_new_tokens)).to(device)
        self._end_ids = frozenset(end_ids)
        self._early = torch.tensor([*end_ids, *barred], dtype=torch.long, device=device)
        self._barred = self._early[len(end_ids) :] if barred else None
        self._seen = self._words_of(contexts)
        self._tokens: list[list[int]] = [[] for _ in keys]
        self._logprobs: list[list[float]] = [[] for _ in keys]

    def run(self) -> list[DrawnRow]:
        """What each row draws."""
        rows = list(range(len(self._tokens)))
        alive = [True] * len(rows)
        limit = self._generation.max_new_tokens
        for step in range(limit):
            token, logprob = self._draw(rows, step)
            alive = self._note(rows, alive, token=token, logprob=logprob)
            num_alive = sum(alive)
            if step + 1 == limit or not num_alive:
                break
            if num_alive <= (1.0 - self._DROP_SHARE) * len(alive):
                kept = self._reading.drop([not is_alive for is_alive in alive])
                token = token[torch.tensor(kept, device=token.device)]
                rows, alive = [rows[place] for place in kept], [True] * len(kept)
            self._reading.advance(token, alive)
        return list(map(DrawnRow, self._tokens, self._logprobs))

    def _words_of(self, contexts: Sequence[Sequence[int]]) -> Bool[Tensor, "B V"] | None:
        """The tokens that each row has read or sampled, if a penalty needs them."""
        if self._generation.repetition_penalty == 1.0:
            return None
        seen = torch.zeros(self._reading.logits.shape, dtype=torch.bool)
        for row, ids in enumerate(contexts):
            seen[row, list(ids)] = True
        return seen.to(self._reading.logits.device)

    def _draw(self, rows: list[int], step: int) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        chosen = torch.tensor(rows, device=self._uniforms.device)
        logits, generation, uniform = self._reading.logits, self._generation, self._uniforms
        seen = None if self._seen is None else self._seen[chosen]
        barred = self._early if step < generation.min_new_tokens else self._barred
        first = uniform[chosen, step]
        token, logprob = sample(logits, generation, first, seen=seen, forbidden=barred)
        is_spare = token == self._spare if self._spare is not None else None
        if is_spare is not None and bool(is_spare.any()):
            rest = torch.tensor([self._spare], device=token.device)
            rest = rest if barred is None else torch.cat([rest, barred])
            other = sample(logits, generation, first * SHIFT % 1.0, seen=seen, forbidden=rest)
            token = torch.where(is_spare, other[0], token)
            logprob = torch.where(is_spare, other[1], logprob)
        if self._seen is not None:
            self._seen[chosen, token] = True
        return token, logprob

    def _note(
        self,
        rows: list[int],
        alive: list[bool],
        *,
        token: Int[Tensor, " B"],
        logprob: Float[Tensor, " B"],
    ) -> list[bool]:
        """Adds this step's tokens to the rows that have not ended; returns which continue."""
        columns = (rows, alive, token.tolist(), logprob.tolist())
        for row, is_alive, own, value in zip(*columns, strict=True):
            if is_alive:
                self._tokens[row].append(own)
                self._logprobs[row].append(value)
        return [
            is_on and own not in self._end_ids for is_on, own in zip(alive, columns[2], strict=True)
        ]
