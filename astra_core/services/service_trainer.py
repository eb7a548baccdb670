"""What trainers share whose weights a service trains: a file of effects, and which step is kept."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from astra_core.config import TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.services.speaker import check_here
from astra_core.services.staged import Stage
from astra_core.services.trainer_state import TrainerState
from astra_core.training.trainer import Trainer


class ServiceTrainer(Trainer):
    """Trains at a service, from one process, and keeps in its store what it asked there.

    Attributes:
        name: As params.yaml names the trainer.
        folder: Of all that is kept of the service.
        asked: What this run asked of the service, and what came of it.
    """

    name: ClassVar[str]

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        super().__init__(config, *arguments, **parts)
        if self.store is None or self.world.size > 1:
            msg = (
                f"trainer '{self.name}' must have a store and one process, got others; give it both"
            )
            raise ConfigurationError(msg)
        if roles := self.sampler.system.config.roles:
            msg = (
                f"system.roles must be empty for trainer '{self.name}', got {list(roles)}: a "
                "service trains one attacker; use the trainer 'trainer'"
            )
            raise ConfigurationError(msg)
        check_here(self.sampler.system, subject=f"trainer '{self.name}'")
        self.folder = self.store.folder / "service"
        self.asked = self.place = self._opened_state()

    @abstractmethod
    def stages(self) -> Sequence[Stage]:
        """Those of an iteration, in order; they yield its reports."""

    def _opened_state(self) -> TrainerState:
        """The effects of this run so far; a run is named by its configuration and seed."""
        run = record_digest([self.config.model_dump(mode="json"), self.sampler.seed])
        return TrainerState.open(self.folder / "state.json", run=run)

    @property
    def _kept_step(self) -> int:
        """The training steps after which the weights are those to keep: the best, or the last."""
        if self.scheme.keeps_best and self.evaluator is not None and self.best.model:
            return self.best.training_step
        return self.progress.training_step
