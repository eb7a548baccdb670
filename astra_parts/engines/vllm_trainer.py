"""The trainer ``vllm``: learns here, as ``trainer`` does, and samples at a vLLM server."""

from typing import Any

from astra_core.config import Section, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.training.trainer import Trainer
from astra_parts.engines.vllm_speaker import SUBJECT, VllmOptions, VllmSpeaker
from astra_parts.services.pointer import parameters_digest
from astra_parts.services.speaker import check_here


class VllmTrainer(Trainer):
    """Trains adapters here, of which the server gets a copy whenever they have changed.

    Evaluations on the way sample at the server too; the exported attacker is as of any training.
    """

    Options: type[Section] = VllmOptions
    options: VllmOptions

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        if config.lora is None:
            msg = (
                f"training.lora must be given for {SUBJECT}, got null: the server takes adapters; "
                "set training.lora={rank: 8}"
            )
            raise ConfigurationError(msg)
        super().__init__(config, *arguments, **parts)
        system = self.sampler.system
        check_here(system, subject=SUBJECT)
        if system.config.roles or self.world.size > 1:
            msg = (
                f"system.roles must be empty and machine.num_processes 1 for {SUBJECT}, got "
                f"{list(system.config.roles)} and {self.world.size}; use the trainer 'trainer'"
            )
            raise ConfigurationError(msg)
        if self.store is None:
            msg = f"{SUBJECT} must have a store, got None; give it the folder of the run"
            raise ConfigurationError(msg)
        folder, run = self.options.folder, self.store.folder.absolute()
        # Of several runs in one folder none touches the others' adapters.
        folder = folder / f"astra-{record_digest(str(run))[:16]}" if folder else run / "adapters"
        base = record_digest([parameters_digest(system.attacker), config.lora.model_dump()])
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
