"""What the stages that run models share: the System from its folders, threads, determinism."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.config import Choice, RolloutsConfiguration, SystemConfiguration
from astra_core.registry import build
from astra_core.rollout import Prompt
from tasks.artifacts import read_model_paths

if TYPE_CHECKING:
    from astra_core.reward import Reward
    from astra_core.sampler import Sampler
    from astra_core.system import System


def load_system(
    config: SystemConfiguration,
    base: Path,
    *,
    num_threads: int = 0,
    attacker: Path | None = None,
    is_trained: bool = False,
) -> "System":
    """The System of the base models, on deterministic kernels and the right number of threads.

    Args:
        config: How the models talk.
        base: What the models stage wrote.
        num_threads: Of torch; 0 chooses by the size of the models.
        attacker: A trained attacker's folder instead of the base one.
        is_trained: True when the attacker is to learn.
    """
    import torch

    from astra_core.models.pretrained import threads_for
    from astra_core.system import System

    paths = read_model_paths(base)
    torch.use_deterministic_algorithms(True)
    system = System.load(
        config,
        attacker=attacker or paths["attacker"],
        target=paths["target"],
        reference=paths["reference"],
        is_trained=is_trained,
    )
    largest = max(system.attacker.num_parameters, system.target.num_parameters)
    torch.set_num_threads(threads_for(largest, num_threads))
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
