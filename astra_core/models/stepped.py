"""Continuations by steps of fixed shape: rows that end make room for those that wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.steps.drawing import Special
from astra_core.engine.steps.step import DecodingStep, DrawnRow, Rows
from astra_core.engine.steps.stepper import Stepper
from astra_core.seeding import uniforms

# Steps between two looks at which rows are over; each look waits for the device.
_STEPS_PER_LOOK = 8
# Ended rows are replaced once they are this share of all: few large readings, little idle room.
_REFILLED_SHARE = 0.25

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class RowToDraw:
    """One row to draw: the context that it continues, by index, and its random key."""

    context: int
    key: bytes


@dataclass(frozen=True, slots=True)
class SteppedRows:
    """Rows that are drawn together, as many at a time as memory allows.

    Attributes:
        contexts: What they continue.
        generation: How to sample.
        stepper: Of the model.
        read: Reads contexts by index; their keys and values come back.
        rules: See ``DecodingRules``.
        store: Gets the keys and values of ended rows.
    """

    contexts: Sequence[Ids]
    generation: GenerationConfiguration
    stepper: Stepper
    read: Callable[[Sequence[int]], KeyValues]
    rules: Special
    store: PrefixStore | None

    def drawn(self, tasks: Sequence[RowToDraw], *, budget: int) -> list[DrawnRow]:
        """What each row draws; ``budget`` bounds rows times slots at a time."""
        longest = max(len(self.contexts[task.context]) for task in tasks)
        num_slots = longest + self.generation.max_new_tokens
        width = max(1, min(len(tasks), budget // num_slots))
        # Rows of like length are read together.
        waiting = sorted(range(len(tasks)), key=lambda i: len(self.contexts[tasks[i].context]))
        found: dict[int, DrawnRow] = {}
        held: dict[int, int] = {}
        step: DecodingStep | None = None
        while waiting:
            free = [place for place in range(width) if place not in held]
            seated = dict(zip(free, waiting, strict=False))
            waiting = waiting[len(free) :]
            rows = self._rows([tasks[index] for index in seated.values()])
            step = step or self.stepper.step(
                rows.values, self.generation, num_rows=width, num_slots=num_slots, rules=self.rules
            )
            step.begin(list(seated), rows)
            held |= seated
            # Enough of them make room for those that wait; the last ones are awaited together.
            refilled = int(_REFILLED_SHARE * width) if waiting else 0
            wanted = min(refilled or len(held), len(held))
            over: list[int] = []
            while len(over) < wanted:
                for _ in range(_STEPS_PER_LOOK):
                    step.advance()
                flags = step.over()
                over = [place for place in held if flags[place]]
            drawn = dict(zip([held.pop(place) for place in over], step.drawn(over), strict=True))
            if self.store is not None:
                # The last token of a row was not read.
                ids = [
                    [*self.contexts[tasks[index].context], *own.token_ids[:-1]]
                    for index, own in drawn.items()
                ]
                at = torch.tensor(over, device=self.stepper.device)
                self.store.add(step.cache.copied(at, [len(own) for own in ids]), ids)
            found |= drawn
        return [found[index] for index in range(len(tasks))]

    def _rows(self, tasks: Sequence[RowToDraw]) -> Rows:
        """The rows to begin with, behind contexts that are read once each."""
        different = list(dict.fromkeys(task.context for task in tasks))
        numbers = {context: number for number, context in enumerate(different)}
        keys = [task.key for task in tasks]
        return Rows(
            [self.contexts[task.context] for task in tasks],
            self.read(different),
            [numbers[task.context] for task in tasks],
            torch.from_numpy(uniforms(keys, self.generation.max_new_tokens)),
        )
