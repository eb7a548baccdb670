"""Stages: the row of named steps of an iteration whose work is done by a service.

Before each stage the state is on disk, and so is what a stage asks of a service before and after it
is asked (see ``trainer_state``): a run that is killed at any moment asks for nothing twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from astra_core.services.trainer_state import TrainerState


def always(iteration: int) -> bool:
    """Due in every iteration."""
    del iteration
    return True


@dataclass(frozen=True, slots=True)
class Stage:
    """A named step of an iteration.

    Attributes:
        name: In the state's file, so that it must stay the same between versions.
        effect: Does it, for an iteration counted from 0. What is asked of a service goes through
            ``TrainerState.once``; all else must be safe to do again. What it yields is handed on
            by ``walk``.
        is_due: Whether this iteration has the stage at all.
    """

    name: str
    effect: Callable[[int], Iterable[Any] | None]
    is_due: Callable[[int], bool] = always


def walk(state: TrainerState, stages: Sequence[Stage], iteration: int) -> Iterator[Any]:
    """Does the due stages of one iteration, the first one first; yields what they yield.

    For a trainer that keeps checkpoints of its own between iterations: it begins the iteration anew
    after a crash, and every effect that was done is found in the state.
    """
    for stage in stages:
        if stage.is_due(iteration):
            state.move_to(iteration, stage.name)
            yield from stage.effect(iteration) or ()
