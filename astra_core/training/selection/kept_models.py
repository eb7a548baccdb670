"""The models that a run keeps of its attacker: the best so far, put back at the end."""

from collections.abc import Callable, Mapping

from astra_core.errors import CheckpointError
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.distribution.distributed import World
from astra_core.training.resume.state import RunState
from astra_core.training.selection.stopping import Best


class KeptModels:
    """Saves the attacker when it is the best, and loads the best one again.

    Args:
        store: Where they are; without one nothing is kept.
        world: The processes that train together; the first one writes.
    """

    def __init__(
        self, best: Best, state: RunState, *, store: CheckpointStore | None, world: World
    ) -> None:
        self._best = best
        self._state = state
        self._store = store
        self._world = world

    def offer(self, metrics: Mapping[str, float], training_step: int, *, min_delta: float) -> None:
        """Saves the present attacker if its evaluation beats the best by enough."""
        name = f"best_{training_step:06d}"
        is_best = self._best.offer(metrics, training_step, name, min_delta=min_delta)
        if is_best:
            self._best.num_processes = self._world.size
        if is_best and self._store is not None and self._world.is_first:
            self._store.save_model(name, self._state.write_model)

    def put_back(self, score: Callable[[], float]) -> None:
        """Gives the attacker the best weights, and checks that they have the same score as before.

        Nothing is shown where another number of processes scored them, which rounds differently.

        ``score``: computes the attacker's score by the metric that chose the best.

        Raises CheckpointError if they have another score.
        """
        if self._store is None or not self._best.model:
            return
        self._world.barrier()
        folder = self._store.model(self._best.model)
        self._state.read_model(folder)
        best = self._best
        if best.num_processes == self._world.size and (now := score()) != best.value:
            msg = (
                f"{folder} must score {best.metric} {best.value} when loaded again, got {now}; "
                "the run is not reproducible on this machine"
            )
            raise CheckpointError(msg)
