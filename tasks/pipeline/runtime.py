"""What the stages that run models share: the System from its folders, device, determinism."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.config import Choice, RolloutsConfiguration, SystemConfiguration
from astra_core.registry import build
from astra_core.rollout import Prompt
from tasks.params.schema import MachineConfiguration
from tasks.records.tables import read_model_paths

if TYPE_CHECKING:
    from astra_core.reward import Reward
    from astra_core.sampler import Sampler
    from astra_core.system import System


def load_system(
    config: SystemConfiguration,
    base: Path,
    *,
    machine: MachineConfiguration,
    attacker: Path | None = None,
    is_trained: bool = False,
) -> "System":
    """The System of the base models, on deterministic kernels and the right number of threads.

    From here on the process keeps the memory that it frees.

    Args:
        config: How the models talk.
        base: What the models stage wrote.
        machine: On which device the models are, and how many threads torch has.
        attacker: A trained attacker's folder instead of the base one.
        is_trained: True when the attacker is to learn.

    Raises:
        ConfigurationError: There is no such device, or a folder cannot be loaded.
    """
    import torch

    from astra_core.engine.memory import keep_freed_memory
    from astra_core.models.pretrained import device_for, threads_for
    from astra_core.system import System

    keep_freed_memory()
    device = device_for(machine.device)
    paths = read_model_paths(base)
    # torch calls every cumulative sum on CUDA nondeterministic, though over rows, as sampling needs
    # it, it is not: there a warning takes the place of the error.
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    # Filling what is about to be written over takes a tenth of a rollout.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    system = System.load(
        config,
        attacker=attacker or paths["attacker"],
        target=paths["target"],
        reference=paths["reference"],
        is_trained=is_trained,
        device=device,
    )
    largest = max(system.attacker.num_parameters, system.target.num_parameters)
    torch.set_num_threads(threads_for(largest, machine.num_threads))
    return system


def build_sampler(
    rollouts: RolloutsConfiguration,
    reward: Choice,
    *,
    system: "System",
    prompts: Sequence[Prompt],
    seed: int,
) -> "Sampler":
    """The configured sampler with a reward of its own."""
    sampler: Sampler = build(
        "sampler",
        rollouts.sampler,
        system=system,
        prompts=prompts,
        reward=build_reward(reward),
        seed=seed,
        max_failed_fraction=rollouts.max_failed_fraction,
    )
    return sampler


def build_reward(reward: Choice) -> "Reward":
    """The configured reward, remembering nothing yet."""
    built: Reward = build("reward", reward)
    return built
