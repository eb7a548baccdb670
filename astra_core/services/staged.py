"""The staged trainer: a state machine for a trainer whose work is done by a service.

An iteration is a row of stages. Before and after each the state is on disk, so a run that is killed
at any moment goes on with the stage it was in; what that stage had asked of a service is in the
state too (see ``trainer_state``), and is not asked again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from astra_core.errors import CheckpointError
from astra_core.services.trainer_state import TrainerState

DONE = "done"
"""The stage after the last."""


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


class StagedTrainer(ABC):
    """Runs its stages, iteration after iteration, from wherever its state says.

    Args:
        state: Of this run, maybe of an earlier process.
        num_iterations: How many there are in all.
    """

    def __init__(self, state: TrainerState, *, num_iterations: int) -> None:
        self.state = state
        self.num_iterations = num_iterations

    @abstractmethod
    def stages(self) -> Sequence[Stage]:
        """Those of an iteration, in order."""

    def closing(self) -> Sequence[Stage]:
        """What follows the last iteration, once."""
        return ()

    def run(self, on_stage: Callable[[int, str], None] | None = None) -> None:
        """Does all that is not done.

        Args:
            on_stage: Called after each stage with its iteration and name, the state on disk.

        Raises:
            CheckpointError: The state is at a stage that this trainer does not have.
        """
        while (found := self.next_stage()) is not None:
            iteration, stage = found
            stage.effect(iteration)
            self._advance(iteration, stage)
            if on_stage is not None:
                on_stage(iteration, stage.name)

    def next_stage(self) -> tuple[int, Stage] | None:
        """What comes next, and in which iteration; None if all is done."""
        iteration, name = self.state.iteration, self.state.stage
        found = next((stage for stage in self._of(iteration) if stage.name == name), None)
        if found is not None:
            return iteration, found
        # A finished run that is to be longer goes on with the iteration after its last.
        is_between = not name or name == DONE or name in {each.name for each in self.closing()}
        if not is_between:
            names = [stage.name for stage in self._of(iteration)]
            msg = f"{self.state.path} must be at one of the stages {names}, got {name!r}"
            raise CheckpointError(msg)
        if name == DONE and iteration >= self.num_iterations:
            return None
        self._begin(iteration)
        return self.next_stage()

    def _advance(self, iteration: int, stage: Stage) -> None:
        """Writes down the stage after this one."""
        known = self._of(iteration)
        later = known[[each.name for each in known].index(stage.name) + 1 :]
        if later:
            self.state.move_to(iteration, later[0].name)
        else:
            self._begin(iteration + 1)

    def _begin(self, iteration: int) -> None:
        """Writes down the first stage of the first iteration from this one on that has any."""
        while iteration < self.num_iterations and not self._of(iteration):
            iteration += 1
        is_closed = iteration > self.num_iterations
        first = [] if is_closed else self._of(iteration)
        name = first[0].name if first else DONE
        self.state.move_to(min(iteration, self.num_iterations), name)

    def _of(self, iteration: int) -> list[Stage]:
        """The stages of an iteration; of the one after the last the closing ones."""
        if iteration >= self.num_iterations:
            return list(self.closing())
        return [stage for stage in self.stages() if stage.is_due(iteration)]
