"""Rows of tokens: contexts padded on the left, continuations on the right, masks never guessed."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Sequences of one forward pass, ``[left padding | context | continuation | right padding]``.

    Attributes:
        position_ids: 0 at the first real token.
        continuation_ids: The last ``T`` columns of ``input_ids``.
    """

    input_ids: Int[Tensor, "B S"]
    attention_mask: Int[Tensor, "B S"]
    position_ids: Int[Tensor, "B S"]
    continuation_ids: Int[Tensor, "B T"]
    continuation_mask: Bool[Tensor, "B T"]

    def sequences(self) -> list[list[int]]:
        """The real tokens of each row."""
        pairs = zip(self.input_ids.tolist(), self.attention_mask.bool().tolist(), strict=True)
        return [list(compress(ids, is_real)) for ids, is_real in pairs]


def pad_rows(
    contexts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    *,
    pad_id: int,
    device: torch.device | str = "cpu",
) -> TokenRows:
    """Rows in which every continuation starts in the same column."""
    width = max((len(context) for context in contexts), default=0)
    tail = max((len(continuation) for continuation in continuations), default=0)
    table = np.full((len(contexts), width + tail), pad_id, dtype=np.int64)
    real = np.zeros_like(table)
    for row, (context, continuation) in enumerate(zip(contexts, continuations, strict=True)):
        start, end = width - len(context), width + len(continuation)
        table[row, start:end] = (*context, *continuation)
        real[row, start:end] = 1
    ids, mask = torch.from_numpy(table), torch.from_numpy(real)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    ids, mask, positions = ids.to(device), mask.to(device), positions.to(device)
    return TokenRows(ids, mask, positions, ids[:, width:], mask[:, width:].bool())


def pad_lists(lists: Sequence[Sequence[float]], width: int) -> Float[Tensor, "B T"]:
    """Lists as rows of float32, filled up with zeros on the right."""
    found = np.zeros((len(lists), width), dtype=np.float32)
    for row, own in enumerate(lists):
        found[row, : len(own)] = own
    return torch.from_numpy(found)


def row_batches(
    contexts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    *,
    pad_id: int,
    device: torch.device | str,
    tokens_per_batch: int,
) -> Iterator[tuple[list[int], TokenRows]]:
    """Rows for one forward pass each, with the indices of the pairs that they hold."""
    costs = [len(c) + len(a) for c, a in zip(contexts, continuations, strict=True)]
    for chunk in batches_within(costs, tokens_per_batch):
        own = [contexts[i] for i in chunk], [continuations[i] for i in chunk]
        yield chunk, pad_rows(*own, pad_id=pad_id, device=device)


def padded_logprobs(model: Any, rows: TokenRows) -> Float[Tensor, "B T"]:
    """Log-probability of each continuation token, nats; exactly 0 at padding.

    The plain way: every row in full, even what it shares with others. It serves models that do
    not follow our masks, and the fast way is tested against it.
    """
    tail = rows.continuation_ids.shape[1]
    if tail == 0 or len(rows.input_ids) == 0:
        return torch.zeros(rows.continuation_ids.shape, device=rows.input_ids.device)
    values = chosen_logprobs(padded_logits(model, rows), rows.continuation_ids)
    return values.masked_fill(~rows.continuation_mask, 0.0)


def padded_logits(model: Any, rows: TokenRows) -> Float[Tensor, "B T V"]:
    """Logits before each place of the continuations."""
    output = model(
        input_ids=rows.input_ids,
        attention_mask=rows.attention_mask,
        position_ids=rows.position_ids,
        logits_to_keep=rows.continuation_ids.shape[1] + 1,
        use_cache=False,
    )
    logits: Tensor = output.logits[:, :-1]
    return logits


def lone_logits(model: Any, ids: Sequence[int]) -> Float[Tensor, "T V"]:
    """Logits after each token of one sequence, which nothing pads and no cache remembers."""
    row = torch.tensor([list(ids)], device=model.device)
    logits: Tensor = model(input_ids=row, use_cache=False).logits[0]
    return logits


def chosen_logprobs(
    logits: Float[Tensor, "*S V"], labels: Int[Tensor, "*S"]
) -> Float[Tensor, "*S"]:
    """Log-probability of each label, nats, in fp32 at least.

    No full log-softmax is kept: it is the label's logit minus the log of the sum of exponentials.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen: Tensor = logits.gather(-1, labels[..., None])[..., 0] - logits.logsumexp(dim=-1)
    return chosen


def batches_within(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped so that rows of like length share a batch and no batch exceeds the budget.

    A single row above the budget gets a batch of its own: the budget bounds memory, it drops
    nothing. There are as few batches as that allows, and they are about equally large: a few rows
    left over for the last one would take almost as long as a full batch.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)

    def cut(most: int) -> list[list[int]]:
        batches: list[list[int]] = []
        for index in order:
            # Of the rows so far this one is the longest.
            if not batches or lengths[index] * (len(batches[-1]) + 1) > most:
                batches.append([])
            batches[-1].append(index)
        return batches

    fewest = len(cut(budget))
    budgets = range(max(lengths, default=0), budget)
    least = bisect_left(budgets, True, key=lambda most: len(cut(most)) <= fewest)
    return cut(budgets[least] if least < len(budgets) else budget)
