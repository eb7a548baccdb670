"""The base of trainers at a service: a file of effects, and the choice of the step to keep."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from astra_core.config import Section, SystemConfiguration, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.training.staged import TrainerStage
from astra_core.training.trainer import Trainer
from astra_parts.services.speaker import check_here
from astra_parts.services.trainer_state import TrainerState


class ServiceTrainer(Trainer):
    """A trainer at a service, from one process, which keeps its requests in its store."""

    name: ClassVar[str]

    @classmethod
    def check_system(
        cls, options: Section, system: SystemConfiguration, training: TrainingConfiguration
    ) -> None:
        """Raises ConfigurationError where several agents learn."""
        del options, training
        refuse_roles(system, subject=f"trainer '{cls.name}'")

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        super().__init__(config, *arguments, **parts)
        if self.store is None or self.world.size > 1:
            msg = (
                f"trainer '{self.name}' must have a store and one process, got others; give it both"
            )
            raise ConfigurationError(msg)
        check_here(self.sampler.system, subject=f"trainer '{self.name}'")
        self.folder = self.store.folder / "service"
        # A run is named by its configuration and seed.
        run = record_digest([self.config.model_dump(mode="json"), self.sampler.seed])
        self.asked = self.place = TrainerState.open(self.folder / "state.json", run=run)

    @abstractmethod
    def stages(self) -> Sequence[TrainerStage]:
        """The stages of an iteration, in order; they yield its reports."""

    @property
    def _kept_step(self) -> int:
        """The training steps after which the weights are those to keep: the best, or the last."""
        if self.scheme.keeps_best and self.evaluator is not None and self.best.model:
            return self.best.training_step
        return self.progress.training_step


def refuse_roles(system: SystemConfiguration, *, subject: str) -> None:
    """Raises ConfigurationError where several agents learn, of which a server takes one."""
    if system.roles:
        msg = (
            f"system.roles must be empty for {subject}, got {list(system.roles)}: a server takes "
            "one attacker; use the trainer 'trainer'"
        )
        raise ConfigurationError(msg)
