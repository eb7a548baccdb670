"""Stages: the row of named steps of an iteration, of every trainer.

Where a service does the work, the state is on disk before each stage, and so is what a stage asks
of the service before and after it is asked (``trainer_state.TrainerState``): a run that is killed
at any moment asks for nothing twice. Where all is done here, the checkpoint is that state: a run
that is killed in any stage does the iteration again, to the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from astra_core.engine.memory import return_freed_memory


class TrainerPlace(Protocol):
    """Where a trainer with effects elsewhere is."""

    def move_to(self, iteration: int, stage: str) -> None:
        """Notes that all before this stage is done."""


@dataclass(frozen=True, slots=True)
class TrainerStage:
    """A named step of an iteration.

    Attributes:
        name: Its name in the state's file, which must stay the same between versions.
        effect: Does it, for an iteration counted from 0. Requests to a service go through
            ``TrainerState.once``; everything else must be safe to repeat. ``walk`` passes on what
            it yields.
    """

    name: str
    effect: Callable[[int], Iterable[Any] | None]


def walk(
    place: TrainerPlace | None, stages: Sequence[TrainerStage], iteration: int
) -> Iterator[Any]:
    """Does the stages of one iteration, the first one first; yields what they yield.

    For a trainer that keeps checkpoints of its own between iterations: it begins the iteration anew
    after a crash, and every effect elsewhere that was done is found in its state.

    ``place``: None for a trainer without such effects; a restart begins at the checkpoint.
    """
    for stage in stages:
        return_freed_memory()
        if place is not None:
            place.move_to(iteration, stage.name)
        yield from stage.effect(iteration) or ()
