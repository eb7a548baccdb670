"""Whether a model may decode in steps of fixed shape: found by numbers, as its other abilities."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from astra_core.config import GenerationConfiguration
from astra_core.engine.abilities import FAILURES, abilities_of, contexts_of, tolerance, trying
from astra_core.engine.cache.reading import CachedReading, PaddedReading
from astra_core.engine.steps.step import DecodingStep, DrawnRow, Rows
from astra_core.engine.steps.stepper import Stepper

_NEW = 3
_known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def takes_steps(model: Any) -> bool:
    """True if the step draws tokens with the log-probabilities that the plain way gives them."""
    found = _known.get(model)
    if found is None:
        with trying(model):
            found = _known[model] = _takes_steps(model)
    return found


def _takes_steps(model: Any) -> bool:
    config = model.config.get_text_config()
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    if not abilities_of(model).takes_masks or any(windows):
        return False
    contexts = contexts_of(model)
    try:
        drawn = _draw_rows(model, contexts)
    except FAILURES:
        return False
    rows = [[*ids, *own.token_ids] for ids, own in zip(contexts, drawn, strict=True)]
    plain = PaddedReading(model, rows, [_NEW] * len(rows))
    pairs = zip(drawn, plain.suffix_logprobs, strict=True)
    gap = max(abs(a - b) for own, other in pairs for a, b in zip(own.logprobs, other, strict=True))
    return gap < tolerance(plain.logits)


def _draw_rows(model: Any, contexts: list[list[int]]) -> list[DrawnRow]:
    reading = CachedReading(model, contexts, [0] * len(contexts), room=0)
    step: DecodingStep = Stepper(model, captures=False).step(
        reading.values,
        GenerationConfiguration(max_new_tokens=_NEW, min_new_tokens=_NEW),
        num_rows=len(contexts),
        num_slots=max(map(len, contexts)) + _NEW,
        rules=((), (), None),
    )
    places = list(range(len(contexts)))
    uniforms = torch.full((len(contexts), _NEW), 0.5, dtype=torch.float64)
    step.begin(places, Rows(contexts, reading.values, places, uniforms))
    for _ in range(_NEW):
        step.advance()
    return step.drawn(places)
