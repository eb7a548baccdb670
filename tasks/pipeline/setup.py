"""The sections of params.yaml from which stages build the System and its sampler."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from astra_core.config import (
    Choice,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.rollout import Prompt
from tasks.pipeline.precision import with_remembered
from tasks.pipeline.stage import Untracked
from tasks.records.models import read_model_paths

if TYPE_CHECKING:
    from astra_core.sampler import Sampler
    from astra_core.system import System


@dataclass(frozen=True, slots=True)
class SystemParams:
    """The sections that decide every rollout."""

    training_seed: int
    machine: MachineConfiguration
    system: SystemConfiguration
    reward: Choice
    # Where the work is done does not change its result.
    executor: Untracked[Choice]

    def with_precision(self, file: Path) -> Self:
        """The same with the precision that an earlier stage chose and left in a file."""
        return replace(self, system=with_remembered(self.system, file))

    def load(
        self, base: Path, *, attacker: Path | None = None, is_trained: bool = False
    ) -> "System":
        """The System of the models that the models stage wrote, or with another attacker."""
        from astra_parts.assembly import ModelFolders, load_system

        return load_system(
            self.system,
            ModelFolders.of(read_model_paths(base), attacker=attacker),
            machine=self.machine,
            is_trained=is_trained,
            executor=self.executor,
            seed=self.training_seed,
        )


@dataclass(frozen=True, slots=True)
class RolloutsParams(SystemParams):
    """The sections that decide the attacker's own rollouts."""

    rollouts: RolloutsConfiguration

    def sampler(
        self, base: Path, prompts: Sequence[Prompt], *, is_trained: bool = False
    ) -> "Sampler":
        """The sampler of the untrained attacker on these prompts."""
        from astra_parts.assembly import build_sampler

        return build_sampler(
            self.rollouts,
            self.reward,
            system=self.load(base, is_trained=is_trained),
            prompts=prompts,
            seed=self.training_seed,
        )
