"""One decoding step of fixed shape: every row reads its last token and draws the next.

Nothing in it depends on numbers that the host would have to know, so a GPU can record it once and
replay it: the rows' tokens, lengths and random numbers, and whether they have ended, stay on the
device, and results are written into tables that are copied to the host when rows are done. On other
devices the same step runs as it is written.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.compilation import compiled_function, compiled_step
from astra_core.engine.masks import additive_mask
from astra_core.engine.steps.drawing import DecodingRules, draw_token
from astra_core.engine.steps.slots import SlotCache

# Rounds before a recording, in which libraries choose their kernels.
_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to begin with, in the order of their places.

    Attributes:
        contexts: Token ids; all but the last are in ``values``.
        values: The keys and values of contexts.
        owners: The row of ``values`` that each continues.
        uniforms: Numbers in [0, 1), one for each token that may be drawn.
    """

    contexts: Sequence[Sequence[int]]
    values: KeyValues
    owners: Sequence[int]
    uniforms: Float[Tensor, "N T"]


class DrawnRow(NamedTuple):
    """What a row has drawn: token ids, and log-probabilities under the unmodified model, nats."""

    token_ids: list[int]
    logprobs: list[float]


class DecodingStep:
    """The buffers of ``R`` rows and the step over them; ``cache`` has their keys and values.

    ``compiles``: the model's pass is compiled by torch.
    """

    def __init__(
        self,
        model: Any,
        cache: SlotCache,
        generation: GenerationConfiguration,
        *,
        rules: DecodingRules,
        compiles: bool = False,
    ) -> None:
        device, rows = model.device, cache.num_rows
        limit = generation.max_new_tokens
        self.cache = cache
        self._model, self._generation, self._rules = model, generation, rules
        self._compiles = compiles
        self._draw = compiled_function(draw_token) if compiles else draw_token
        self._slots = torch.arange(cache.capacity, device=device)
        self._token = torch.zeros(rows, dtype=torch.long, device=device)
        self._length = torch.zeros(rows, dtype=torch.long, device=device)
        self._count = torch.zeros(rows, dtype=torch.long, device=device)
        self._is_over = torch.ones(rows, dtype=torch.bool, device=device)
        self._uniforms = torch.zeros(rows, limit, dtype=torch.float64, device=device)
        # What a row draws after its end goes into the last column, which is not read.
        self._tokens = torch.zeros(rows, limit + 1, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(rows, limit + 1, device=device)
        self._seen: Tensor | None = None
        if generation.repetition_penalty != 1.0:
            size = model.config.get_text_config().vocab_size
            self._seen = torch.zeros(rows, size, dtype=torch.bool, device=device)
        self._run: Callable[[], None] = self._advance

    def capture(self) -> None:
        """Records the step, so that ``advance`` replays it; no row may have begun."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                self._advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._advance()
        self._run = graph.replay

    def begin(self, places: Sequence[int], rows: Rows) -> None:
        """Puts new rows into these places, which must be over."""
        device = self._token.device
        at, owners = (torch.tensor(own, device=device) for own in (places, rows.owners))
        self.cache.load(at, rows.values, owners)
        last = torch.tensor([ids[-1] for ids in rows.contexts], device=device)
        self._token.index_copy_(0, at, last)
        # The last token of a context is read by the first step, as any other token is.
        read = torch.tensor([len(ids) - 1 for ids in rows.contexts], device=device)
        self._length.index_copy_(0, at, read)
        self._uniforms.index_copy_(0, at, rows.uniforms.to(device))
        self._count.index_fill_(0, at, 0)
        self._is_over.index_fill_(0, at, False)
        if self._seen is not None:
            seen = torch.zeros(len(places), self._seen.shape[1], dtype=torch.bool)
            for row, ids in enumerate(rows.contexts):
                seen[row, list(ids)] = True
            self._seen.index_copy_(0, at, seen.to(device))

    def advance(self) -> None:
        """One token more for every row that is not over."""
        self._run()

    def over(self) -> list[bool]:
        """Which rows are over; waits for the device."""
        found: list[bool] = self._is_over.tolist()
        return found

    def drawn_rows(self, places: Sequence[int]) -> list[DrawnRow]:
        """What the rows in these places have drawn."""
        at = torch.tensor(places, device=self._token.device)
        tables = (self._count, self._tokens, self._logprobs)
        counts, tokens, logprobs = (table.index_select(0, at).tolist() for table in tables)
        return [
            DrawnRow(ids[:count], values[:count])
            for count, ids, values in zip(counts, tokens, logprobs, strict=True)
        ]

    @torch.no_grad()
    def _advance(self) -> None:
        self.cache.aim(self._length)
        visible = self._slots <= self._length[:, None]
        mask = additive_mask(visible[:, None], self.cache.layers[0].keys.dtype)
        token, logprob = self._next(mask)
        at = self._count[:, None]
        self._tokens.scatter_(1, at, token[:, None])
        self._logprobs.scatter_(1, at, logprob[:, None])
        if self._seen is not None:
            self._seen.scatter_(1, token[:, None], True)  # torch's value
        is_on = ~self._is_over
        self._count.add_(is_on)
        self._length.add_(is_on)
        is_end = (token[:, None] == self._rules.end_ids).any(dim=1)
        self._is_over.logical_or_(is_end | (self._count == self._uniforms.shape[1]))
        self._token.copy_(token)

    def _next(
        self, mask: Float[Tensor, "R 1 1 C"]
    ) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"]]:
        """The token that each row draws, and its log-probability."""
        column = self._count.clamp(max=self._uniforms.shape[1] - 1)
        uniform = self._uniforms.gather(1, column[:, None])[:, 0]
        with compiled_step(self._model, self.cache) if self._compiles else nullcontext():
            output = self._model(
                input_ids=self._token[:, None],
                attention_mask=mask,
                position_ids=self._length[:, None],
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return self._draw(
            output.logits[:, -1],
            self._generation,
            uniform,
            rules=self._rules,
            count=self._count,
            seen=self._seen,
        )


@contextmanager
def quick_kernels() -> Iterator[None]:
    """Runs the body without torch's slower variants of kernels for sums in a fixed order.

    Sampling needs none: no two numbers are added in an order that could differ, and what is written
    twice is never read. cuBLAS has its own setting, which stays.
    """
    was = torch.are_deterministic_algorithms_enabled()
    is_warning = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(mode=False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=is_warning)
