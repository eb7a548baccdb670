"""Ids that a model never says: their logits are as good as minus infinity wherever it is run.

So what is sampled, scored and learnt has one distribution, over the other ids.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_NAME = "astra_barred"
# Its exponential is 0 beside any real logit, also in half precision; unlike infinity, it makes no
# NaN, and a barred id that was said elsewhere keeps a likelihood.
_LOW = -1e4

Barred = Int[Tensor, " E"] | None
"""Ids; None for none."""


def bar(model: Any, ids: Sequence[int]) -> None:
    """Bars these ids of a causal LM of transformers, and no others."""
    if not hasattr(model, _NAME):
        if not ids:
            return
        model.register_forward_hook(_bar_logits)
    setattr(model, _NAME, torch.tensor(ids, dtype=torch.long) if ids else None)


def bars_of(model: Any) -> Barred:
    """The ids that are barred."""
    found: Barred = getattr(model, _NAME, None)
    return found


@contextmanager
def unbar(model: Any) -> Iterator[None]:
    """Runs the body with nothing barred."""
    found = bars_of(model)
    if found is not None:
        setattr(model, _NAME, None)
    try:
        yield
    finally:
        if found is not None:
            setattr(model, _NAME, found)


def lower_barred(logits: Float[Tensor, "*S V"], barred: Barred) -> Float[Tensor, "*S V"]:
    """The logits with those of the barred ids lowered; without a gradient, in place."""
    if barred is None:
        return logits
    barred = barred.to(logits.device)
    if logits.requires_grad:
        return logits.index_fill(-1, barred, _LOW)
    return logits.index_fill_(-1, barred, _LOW)


def _bar_logits(model: Any, _: Any, output: Any) -> Any:
    barred = bars_of(model)
    if barred is not None and getattr(output, "logits", None) is not None:
        if barred.device != output.logits.device:
            # It stays there: a copy to a GPU at every token would wait for it.
            barred = barred.to(output.logits.device)
            setattr(model, _NAME, barred)
        output.logits = lower_barred(output.logits, barred)
    return output
