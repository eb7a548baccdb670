"""The decoding steps of one model: one for each shape and way to sample, kept for the run."""

import logging
from typing import Any

import torch

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.steps.drawing import DecodingRules, Special
from astra_core.engine.steps.slots import Arena, SlotCache
from astra_core.engine.steps.step import DecodingStep
from astra_core.errors.exception_text import shorten

_LOG = logging.getLogger(__name__)

# Capacities are multiples of it.
_SLOTS = 64
# More shapes than a run has; a recording holds some memory of its own.
_MOST_KEPT = 24


class Stepper:
    """Makes the step for some number of rows, slightly larger ones included, and keeps it.

    ``captures``: a GPU records and replays the steps; ``compiles``: see ``DecodingStep``.
    """

    def __init__(self, model: Any, *, captures: bool, compiles: bool = False) -> None:
        self._model = model
        self._captures, self._compiles = captures, compiles
        self._arena: Arena | None = None
        self._steps: dict[object, DecodingStep] = {}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        found: torch.device = self._model.device
        return found

    def step(
        self,
        like: KeyValues,
        generation: GenerationConfiguration,
        *,
        num_rows: int,
        num_slots: int,
        rules: Special,
    ) -> DecodingStep:
        """A step of at least so many rows and slots, all of its rows over.

        ``like``: a cache of the model that has been written to; ``num_slots``: tokens of the
        longest row at its end.
        """
        rows, slots = round_up(num_rows), -(-num_slots // _SLOTS) * _SLOTS
        if self._arena is None or self._arena.num_slots < rows * slots:
            # The recordings have addresses of the memory that is about to go.
            self._steps.clear()
            self._arena = None
            self._arena = Arena(like, rows * slots)
        name = (rows, slots, generation, rules)
        found = self._steps.pop(name, None)
        if found is None:
            found = self._new_step(generation, self._arena.cache(rows, slots), rules)
        self._steps[name] = found
        if len(self._steps) > _MOST_KEPT:
            del self._steps[next(iter(self._steps))]
        return found

    def _new_step(
        self, generation: GenerationConfiguration, cache: SlotCache, rules: Special
    ) -> DecodingStep:
        step = DecodingStep(
            self._model,
            cache,
            generation,
            rules=DecodingRules.on(self._model.device, rules),
            compiles=self._compiles,
        )
        if self._captures:
            try:
                step.capture()
            except RuntimeError as error:
                # A model may ask the host on its way, as some do that route tokens to experts.
                self._captures = False
                _LOG.warning(
                    "the steps of %s cannot be recorded, so each kernel is started by itself: %s",
                    type(self._model).__name__,
                    shorten(str(error).partition("\n")[0]),
                )
        return step


def round_up(count: int) -> int:
    """The next number of the form 2^k or 3 * 2^k."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and power * 3 // 4 >= count else power
