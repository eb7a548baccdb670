"""The trainer ``vllm``: learns here, as ``trainer`` does, and samples at a vLLM server."""

from typing import Any

from astra_core.config import Section, SystemConfiguration, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.training.trainer import Trainer
from astra_parts.engines.vllm_speaker import SUBJECT, VllmOptions, VllmSpeaker
from astra_parts.services.pointer import parameters_digest
from astra_parts.services.service_trainer import refuse_roles
from astra_parts.services.speaker import check_here


class VllmTrainer(Trainer):
    """Trains adapters here, of which the server gets a copy whenever they have changed.

    Evaluations on the way sample at the server too; the exported attacker is as of any training.
    """

    Options: type[Section] = VllmOptions
    options: VllmOptions

    @classmethod
    def check_system(
        cls, options: Section, system: SystemConfiguration, training: TrainingConfiguration
    ) -> None:
        """Raises ConfigurationError unless one attacker learns adapters."""
        del options
        if training.lora is None:
            msg = (
                f"training.lora must be given for {SUBJECT}, got null: the server takes adapters; "
                "set training.lora={rank: 8}"
            )
            raise ConfigurationError(msg)
        refuse_roles(system, subject=SUBJECT)

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        super().__init__(config, *arguments, **parts)
        system = self.sampler.system
        check_here(system, subject=SUBJECT)
        if self.store is None or self.world.size > 1:
            msg = f"{SUBJECT} must have a store and one process, got others; give it both"
            raise ConfigurationError(msg)
        folder, run = self.options.folder, self.store.folder.absolute()
        # Of several runs in one folder none touches the others' adapters.
        folder = folder / f"astra-{record_digest(str(run))[:16]}" if folder else run / "adapters"
        lora = config.lora and config.lora.model_dump()
        base = record_digest([parameters_digest(system.attacker), lora])
        self.speaker = VllmSpeaker(self.options, system.attacker, base=base, folder=folder)
        system.attacker.elsewhere = self.speaker

    def restore_best(self) -> None:
        """Also ends the sampling at the server: from now on the attacker here speaks itself."""
        super().restore_best()
        self.close()
        self.sampler.system.attacker.elsewhere = None

    def close(self) -> None:
        """Takes this run's adapters from the server and from the folder."""
        self.speaker.close()
