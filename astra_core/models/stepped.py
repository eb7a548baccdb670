"""Continuations by steps of fixed shape: rows that end make room for those that wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
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
    _held: dict[int, int] = field(default_factory=dict)
    _step: DecodingStep | None = None

    def draw(self, tasks: Sequence[RowToDraw], *, budget: int) -> list[DrawnRow]:
        """What each row draws; ``budget`` bounds rows times slots at a time."""
        longest = max(len(self.contexts[task.context]) for task in tasks)
        num_slots = longest + self.generation.max_new_tokens
        width = max(1, min(len(tasks), budget // num_slots))
        # Rows of like length are read together.
        waiting = sorted(range(len(tasks)), key=lambda i: len(self.contexts[tasks[i].context]))
        found: dict[int, DrawnRow] = {}
        while waiting or self._held:
            free = [place for place in range(width) if place not in self._held]
            taken, waiting = waiting[: len(free)], waiting[len(free) :]
            if taken:
                shape = width, num_slots
                self._begin(dict(zip(free, taken, strict=False)), tasks, shape=shape)
            found |= self._collect(tasks, at_least=int(_REFILLED_SHARE * width) if waiting else 0)
        return [found[index] for index in range(len(tasks))]

    def _begin(
        self, seated: dict[int, int], tasks: Sequence[RowToDraw], *, shape: tuple[int, int]
    ) -> None:
        """Lets rows begin in these places."""
        own = [tasks[index] for index in seated.values()]
        different = list(dict.fromkeys(task.context for task in own))
        values = self.read(different)
        if self._step is None:
            self._step = self.stepper.step(
                values, self.generation, num_rows=shape[0], num_slots=shape[1], rules=self.rules
            )
        numbers = {context: number for number, context in enumerate(different)}
        count = self.generation.max_new_tokens
        rows = Rows(
            [self.contexts[task.context] for task in own],
            values,
            [numbers[task.context] for task in own],
            torch.from_numpy(uniforms([task.key for task in own], count)),
        )
        self._step.begin(list(seated), rows)
        self._held |= seated

    def _collect(self, tasks: Sequence[RowToDraw], *, at_least: int) -> dict[int, DrawnRow]:
        """Rows that are over, once they are enough, or once all are; their places are free."""
        step = self._step
        assert step is not None  # noqa: S101  # rows have begun
        wanted = min(max(at_least, 1), len(self._held)) if at_least else len(self._held)
        over: list[int] = []
        while len(over) < wanted:
            for _ in range(_STEPS_PER_LOOK):
                step.advance()
            flags = step.over()
            over = [place for place in self._held if flags[place]]
        indices = [self._held.pop(place) for place in over]
        drawn = dict(zip(indices, step.drawn_rows(over), strict=True))
        if self.store is not None:
            # The last token of a row was not read.
            ids = [
                [*self.contexts[tasks[index].context], *one.token_ids[:-1]]
                for index, one in drawn.items()
            ]
            at = torch.tensor(over, device=self.stepper.device)
            self.store.add(step.cache.copy_rows(at, [len(own) for own in ids]), ids)
        return drawn
