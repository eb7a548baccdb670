"""The loop that draws one token per row and step."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.config import GenerationConfiguration
from astra_core.models.decoding import draw, processed_logits
from astra_core.seeding import uniforms


class Decoder:
    """Draws one token per row and step until every row has ended; ended rows are dropped."""

    # Dropping copies the cache, so it waits until this share of the rows has ended.
    _DROP_SHARE = 0.25

    def __init__(
        self,
        model: Any,
        generation: GenerationConfiguration,
        *,
        keys: Sequence[bytes],
        end_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        self._model = model
        self._generation = generation
        self._uniforms = torch.from_numpy(uniforms(keys, generation.max_new_tokens)).to(device)
        self._ends = torch.tensor(end_ids, dtype=torch.long, device=device)
        self._tokens: list[list[int]] = [[] for _ in keys]
        self._logprobs: list[list[float]] = [[] for _ in keys]

    def run(
        self,
        cache: Any,
        logits: Float[Tensor, "B V"],
        context_ids: Int[Tensor, "B T"],
        attention_mask: Int[Tensor, "B T"],
    ) -> list[tuple[list[int], list[float]]]:
        """Token ids and their log-probabilities under the unmodified model, one pair per row."""
        rows = torch.arange(len(logits), device=logits.device)
        positions = attention_mask.sum(dim=1)
        seen = self._seen(context_ids, attention_mask, logits)
        alive = torch.ones_like(rows, dtype=torch.bool)
        limit = self._generation.max_new_tokens
        for step in range(limit):
            token, logprob = self._draw(logits, self._uniforms[rows, step], step, seen)
            self._note(rows, alive, token, logprob)
            if seen is not None:
                seen = seen.scatter(1, token[:, None], value=True)
            alive = alive & ~torch.isin(token, self._ends)
            num_alive = int(alive.sum())
            if step + 1 == limit or not num_alive:
                break
            if num_alive <= (1.0 - self._DROP_SHARE) * len(alive):
                kept = alive.nonzero()[:, 0]
                cache.batch_select_indices(kept)
                rows, token, positions, alive = (
                    rows[kept],
                    token[kept],
                    positions[kept],
                    alive[kept],
                )
                attention_mask = attention_mask[kept]
                seen = seen[kept] if seen is not None else None
            attention_mask = torch.cat([attention_mask, torch.ones_like(token)[:, None]], dim=1)
            output = self._model(
                input_ids=token[:, None],
                attention_mask=attention_mask,
                position_ids=positions[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            positions = positions + 1
            logits = output.logits[:, -1]
        return list(zip(self._tokens, self._logprobs, strict=True))

    def _seen(
        self, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"], logits: Float[Tensor, "B V"]
    ) -> Bool[Tensor, "B V"] | None:
        if self._generation.repetition_penalty == 1.0:
            return None
        counts = torch.zeros(logits.shape, dtype=torch.long, device=logits.device)
        return counts.scatter_add(1, ids, mask.long()) > 0

    def _draw(
        self,
        logits: Float[Tensor, "B V"],
        uniform: Float[Tensor, " B"],
        step: int,
        seen: Bool[Tensor, "B V"] | None,
    ) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        logits = logits.float()
        forbidden = self._ends if step < self._generation.min_new_tokens else None
        chosen = processed_logits(logits, self._generation, seen=seen, forbidden=forbidden)
        token = draw(chosen, uniform)
        logprob = logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(dim=1)
        return token, logprob

    def _note(
        self,
        rows: Int[Tensor, " B"],
        alive: Bool[Tensor, " B"],
        token: Int[Tensor, " B"],
        logprob: Float[Tensor, " B"],
    ) -> None:
        """Adds this step's tokens to the rows that have not ended."""
        columns = (rows.tolist(), alive.tolist(), token.tolist(), logprob.tolist())
        for row, is_alive, own, value in zip(*columns, strict=True):
            if is_alive:
                self._tokens[row].append(own)
                self._logprobs[row].append(value)
