"""A batch of contexts that a model has read and continues, one token per row and step.

There are three ways. ``CachedReading`` stores each row's keys and values so that a later call finds
them, and nothing is read twice. ``PaddedReading`` is the plain way, contexts padded on the left and
transformers' own cache: it serves models whose attention does not follow our masks, and the other
way is tested against it. ``LoneReading`` serves models that cannot be padded either.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.engine.bars import bars_of, lower_barred
from astra_core.engine.cache.key_values import KeyValues, Pass
from astra_core.engine.cache.prefixes import Place, PrefixStore
from astra_core.engine.head import blocks_of
from astra_core.engine.masks import attention_masks
from astra_core.models.rows import chosen_logprobs, lone_logits, pad_rows

# Of scored tokens: enough rows for the head's product, in little memory.
_LOGITS_AT_ONCE = 1 << 24


class Reading(ABC):
    """Rows that were read up to a point.

    Attributes:
        logits: Of the token after each row.
        suffix_logprobs: Of the last tokens of each context, as many as were asked for, nats.
    """

    logits: Float[Tensor, "B V"]
    suffix_logprobs: list[tuple[float, ...]]

    @abstractmethod
    def select(self, rows: Sequence[int], *, room: int = 0) -> None:
        """Continues with these rows, also with several copies of one, and ``room`` more tokens."""

    def drop(self, is_over: Sequence[bool]) -> list[int]:
        """Continues without the finished rows; returns which row is now in each place."""
        kept = [place for place, over in enumerate(is_over) if not over]
        self.select(kept)
        return kept

    @abstractmethod
    def advance(self, tokens: Int[Tensor, " B"], alive: Sequence[bool]) -> Float[Tensor, "B V"]:
        """Reads one more token in each row; what follows in rows not alive is never used."""

    def close(self) -> None:  # noqa: B027  # nothing to keep by default
        """Ends the reading."""


class PaddedReading(Reading):
    """The plain way: every context is read from its start."""

    def __init__(
        self, model: Any, contexts: Sequence[Sequence[int]], suffix_lengths: Sequence[int]
    ) -> None:
        device = next(model.parameters()).device
        rows = pad_rows(contexts, [()] * len(contexts), pad_id=0, device=device)
        output = model(
            input_ids=rows.input_ids,
            attention_mask=rows.attention_mask,
            position_ids=rows.position_ids,
            logits_to_keep=max(suffix_lengths) + 1,
            use_cache=True,
        )
        self._model = model
        self._cache = output.past_key_values
        self._mask = rows.attention_mask
        self._positions = self._mask.sum(dim=1)
        self.logits = output.logits[:, -1]
        kept = output.logits.shape[1]
        labels = rows.input_ids[:, rows.input_ids.shape[1] - kept + 1 :]
        values = chosen_logprobs(output.logits[:, :-1], labels).tolist()
        self.suffix_logprobs = [
            tuple(row[len(row) - length :])
            for row, length in zip(values, suffix_lengths, strict=True)
        ]

    def select(self, rows: Sequence[int], *, room: int = 0) -> None:
        """See ``Reading.select``; transformers' cache makes room by itself."""
        del room
        chosen = torch.tensor(rows, device=self._mask.device)
        self._cache.batch_select_indices(chosen)
        self._mask, self._positions = self._mask[chosen], self._positions[chosen]
        self.logits = self.logits[chosen]

    def advance(self, tokens: Int[Tensor, " B"], alive: Sequence[bool]) -> Float[Tensor, "B V"]:
        """See ``Reading.advance``."""
        del alive
        self._mask = torch.cat([self._mask, torch.ones_like(tokens)[:, None]], dim=1)
        output = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._positions[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        self._positions = self._positions + 1
        self.logits = output.logits[:, -1]
        return self.logits


class LoneReading(Reading):
    """The way that every causal LM takes: each row alone, and from its start at every step."""

    def __init__(
        self, model: Any, contexts: Sequence[Sequence[int]], suffix_lengths: Sequence[int]
    ) -> None:
        self._model = model
        self._ids = [list(context) for context in contexts]
        logits = [lone_logits(model, ids) for ids in self._ids]
        self.logits = torch.stack([own[-1] for own in logits])
        kept = [own[-1 - n :] for own, n in zip(logits, suffix_lengths, strict=True)]
        self.suffix_logprobs = _suffixes([torch.cat(kept)], contexts, suffix_lengths)

    def select(self, rows: Sequence[int], *, room: int = 0) -> None:
        """See ``Reading.select``."""
        del room
        self._ids = [list(self._ids[row]) for row in rows]
        self.logits = self.logits[torch.tensor(rows, device=self.logits.device)]

    def advance(self, tokens: Int[Tensor, " B"], alive: Sequence[bool]) -> Float[Tensor, "B V"]:
        """See ``Reading.advance``."""
        found = list(self.logits)
        for row, (token, is_alive) in enumerate(zip(tokens.tolist(), alive, strict=True)):
            if is_alive:
                self._ids[row].append(token)
                found[row] = lone_logits(self._model, self._ids[row])[-1]
        self.logits = torch.stack(found)
        return self.logits


class CachedReading(Reading):
    """The fast way: the part of a context that a store has is not read again.

    What several rows share is stored once for all of them, if the model supports it.
    """

    def __init__(
        self,
        model: Any,
        contexts: Sequence[Sequence[int]],
        suffix_lengths: Sequence[int],
        *,
        store: PrefixStore | None = None,
        places: Sequence[Place | None] | None = None,
        room: int,
        takes_stems: bool = False,
        has_plain_head: bool = False,
    ) -> None:
        """Reads behind ``places`` of contexts in a store, as by ``PrefixStore.places``.

        ``takes_stems`` and ``has_plain_head``: see ``Abilities``.
        """
        self._model = model
        self._store = store
        self._takes_stems = takes_stems
        self._device = next(model.parameters()).device
        self._ids = [list(context) for context in contexts]
        self._retired: list[list[int]] = []
        self._values = self._values_at(places or [None] * len(contexts), room + 1)
        starts = self._values.totals
        kept = [n + 1 for n in suffix_lengths]
        unread = [ids[start:] for ids, start in zip(contexts, starts, strict=True)]
        ends = torch.tensor(kept, device=self._device).cumsum(0) - 1
        if has_plain_head and any(suffix_lengths):
            # The logits of every scored token together would be larger than all else that is held.
            states = self._read_tokens(unread, kept, of=model.base_model)
            self.logits = self._head(states[ends])
            blocks = torch.split(states, max(1, _LOGITS_AT_ONCE // self.logits.shape[1]))
            self.suffix_logprobs = _suffixes(map(self._head, blocks), contexts, suffix_lengths)
        else:
            logits = self._read_tokens(unread, kept, of=model)
            self.logits = logits[ends]
            self.suffix_logprobs = _suffixes([logits], contexts, suffix_lengths)

    def _values_at(self, places: Sequence[Place | None], room: int) -> KeyValues:
        """A cache with what is stored of every context."""
        longest = max(map(len, self._ids))
        known = next((place for place in places if place is not None), None)
        if known is None:
            num_layers = self._model.config.get_text_config().num_hidden_layers
            return KeyValues(num_layers, [0] * len(places), longest + room)
        pieces = [place or (known[0], known[1], 0) for place in places]
        different = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
        if not self._is_shared(len(different), len(pieces)):
            return KeyValues.gather(pieces, capacity=longest + room)
        longest = max(length for _, _, length in different)
        stem = KeyValues.gather(list(different), capacity=longest)
        pairs = zip(self._ids, pieces, strict=True)
        unread = max(len(context) - length for context, (_, _, length) in pairs)
        return stem.fork([different[piece] for piece in pieces], capacity=unread + room)

    def _is_shared(self, num_prefixes: int, num_rows: int) -> bool:
        """True if rows should share their prefixes in a stem: most have a sibling."""
        return self._takes_stems and 2 * num_prefixes <= num_rows

    def _head(self, states: Float[Tensor, "S H"]) -> Float[Tensor, "S V"]:
        return lower_barred(self._model.get_output_embeddings()(states), bars_of(self._model))

    def _read_tokens(
        self, tokens: Sequence[Sequence[int]], num_kept: Sequence[int], *, of: Any
    ) -> Float[Tensor, "S X"]:
        """What a model or its body says after the last ``num_kept[b]`` tokens, row by row."""
        width = max(map(len, tokens))
        ids = torch.zeros((len(tokens), width), dtype=torch.long)
        is_kept = torch.zeros((len(tokens), width), dtype=torch.bool)
        for row, (own, kept) in enumerate(zip(tokens, num_kept, strict=True)):
            ids[row, : len(own)] = torch.tensor(own)
            is_kept[row, len(own) - kept : len(own)] = True
        ids, is_kept = ids.to(self._device), is_kept.to(self._device)
        counts = [len(own) for own in tokens]
        if of is self._model:
            found: Tensor = self._forward(ids, counts, of, logits_to_keep=is_kept).logits
        else:
            found = self._forward(ids, counts, of).last_hidden_state[is_kept]
        return found

    def _forward(
        self, ids: Int[Tensor, "B Q"], counts: Sequence[int], model: Any, **asked: Any
    ) -> Any:
        told = self._values.open(counts, self._device)
        output = model(
            input_ids=ids,
            attention_mask=self._masks(told),
            position_ids=told.positions,
            past_key_values=self._values,
            use_cache=True,
            **asked,
        )
        self._values.close()
        return output

    def _masks(self, told: Pass) -> Any:
        has_window = getattr(self._model.config, "sliding_window", None)
        if told.is_even and told.slots.shape[1] == 1 and not has_window:
            # One query that sees every key needs no mask.
            return None
        keys = torch.arange(told.width, device=self._device)
        distances = told.slots[:, :, None] - keys
        return attention_masks(
            self._model.config, distances >= 0, distances, dtype=self._model.dtype
        )

    def select(self, rows: Sequence[int], *, room: int = 0) -> None:
        """See ``Reading.select``."""
        if list(rows) == list(range(len(self._ids))) and self._values.has_room(room):
            return
        if self._is_shared(len(set(rows)), len(rows)) and self._is_mostly_own():
            self._values = self._whole().fork(rows, capacity=room + 1)
        else:
            longest = max(self._values.lengths[row] for row in rows)
            self._values = self._values.copy_rows(rows, capacity=longest + room + 1)
        self._ids = [list(self._ids[row]) for row in rows]
        self.logits = self.logits[torch.tensor(rows, device=self._device)]

    def _is_mostly_own(self) -> bool:
        """True if rows hold more than the stem that they share already."""
        values = self._values
        return values.stem is None or 2 * sum(values.lengths) > sum(values.totals)

    def _whole(self) -> KeyValues:
        """The rows with what they have in a stem, which a cache may have one of."""
        if self._values.stem is None:
            return self._values
        totals = self._values.totals
        pieces = [(self._values, row, length) for row, length in enumerate(totals)]
        return KeyValues.gather(pieces, capacity=max(totals))

    def drop(self, is_over: Sequence[bool]) -> list[int]:
        """See ``Reading.drop``; finished rows are still stored."""
        order = self._values.retire(is_over)
        num_kept = len(self._values.lengths)
        self._retired = [self._ids[place] for place in order[num_kept:]] + self._retired
        self._ids = [self._ids[place] for place in order[:num_kept]]
        self.logits = self.logits[torch.tensor(order[:num_kept], device=self._device)]
        return order[:num_kept]

    def advance(self, tokens: Int[Tensor, " B"], alive: Sequence[bool]) -> Float[Tensor, "B V"]:
        """See ``Reading.advance``."""
        for ids, token, is_alive in zip(self._ids, tokens.tolist(), alive, strict=True):
            if is_alive:
                ids.append(token)
        counts = [int(is_alive) for is_alive in alive]
        output = self._forward(tokens[:, None], counts, self._model, logits_to_keep=1)
        self.logits = output.logits[:, -1]
        return self.logits

    @property
    def values(self) -> KeyValues:
        """The keys and values of what was read."""
        return self._values

    def close(self) -> None:
        """Gives the rows to the store."""
        if self._values.stem is not None:
            self._values.stem.settle()
        if self._store is not None:
            self._store.add(self._values, self._ids + self._retired)


def _suffixes(
    logits: Iterable[Float[Tensor, "S V"]],
    contexts: Sequence[Sequence[int]],
    lengths: Sequence[int],
) -> list[tuple[float, ...]]:
    """Log-probabilities of the last tokens, from the logits before each and one after all.

    ``logits``: in one piece or several.
    """
    labels = [[*c[len(c) - n :], 0] for c, n in zip(contexts, lengths, strict=True)]
    flat = torch.tensor([label for own in labels for label in own])
    values: list[float] = []
    for piece in logits:
        own = flat[len(values) : len(values) + len(piece)].to(piece.device)
        found = [chosen_logprobs(piece[rows], own[rows]) for rows in blocks_of(piece)]
        values += torch.cat(found).tolist()
    ends = [0, *accumulate(map(len, labels))]
    return [tuple(values[begin : end - 1]) for begin, end in pairwise(ends)]
