"""The composition root: builds the parts of a run, for stages, presets and notebooks alike."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.crew import Crew
from astra_core.engine.machine import Machine
from astra_core.engine.memory import keep_freed_memory
from astra_core.evaluator import Evaluator
from astra_core.extensions.calls import plugin_call
from astra_core.models.pretrained import device_for
from astra_core.registry import build, resolve
from astra_core.rollout import Graph, Prompt
from astra_core.sampler import Sampler
from astra_core.system import System
from astra_parts.executors.scoring import executor_of

if TYPE_CHECKING:
    # Imported late: stages that only roll out or evaluate must not depend on the training code.
    from astra_core.training.checkpoint import CheckpointStore
    from astra_core.training.distribution.distributed import World
    from astra_core.training.trainer import Trainer


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """The Hugging Face folders of a System's models.

    Attributes:
        target: Frozen; None where the target has no weights here.
        reference: The untrained attacker's copy; equal weights load once.
        may_differ: The attacker may have another tokenizer than it, such as a champion of another
            base model; it is then compared with none.
    """

    attacker: Path
    target: Path | None
    reference: Path
    may_differ: bool = False

    @classmethod
    def of(cls, paths: Mapping[str, Path], *, attacker: Path | None = None) -> Self:
        """The folders by role, with another attacker."""
        own = attacker or paths["attacker"]
        return cls(own, paths.get("target"), paths["reference"], may_differ=attacker is not None)

    def resolve_paths(self) -> Self:
        """The same with absolute paths, for a process with another working folder."""
        attacker, reference = self.attacker.resolve(), self.reference.resolve()
        target = self.target.resolve() if self.target else None
        return replace(self, attacker=attacker, target=target, reference=reference)


def load_system(
    config: SystemConfiguration,
    folders: ModelFolders,
    *,
    machine: MachineConfiguration | None = None,
    is_trained: bool = False,
    executor: Choice | None = None,
    seed: int | None = None,
) -> System:
    """The System of these folders, on deterministic kernels and the right number of threads.

    From here on the process keeps the memory that it frees.

    Args:
        machine: On which device they are, and how many threads torch has; None for the defaults.
        executor: Rolls it out; None for this process.
        seed: Of torch's global generator, from which our own code never draws: a plug-in that does
            draws the same in every process, and its state in a checkpoint has the same bytes.

    Raises ConfigurationError if there is no such device, or a folder cannot be loaded.
    """
    if seed is not None:
        torch.manual_seed(seed)
    machine = machine or MachineConfiguration()
    # A System is full of circles, so an earlier one of this process may still hold its weights.
    gc.collect()
    keeps_freed_memory = keep_freed_memory()
    device = device_for(machine.device)
    if device.type == "cuda":
        # torch calls every cumulative sum there nondeterministic, but over rows, as in sampling, it
        # is deterministic: so there is a warning instead of an error.
        torch.use_deterministic_algorithms(machine.deterministic, warn_only=True)
    else:  # The other loads torch's compiler, which takes as long as torch itself.
        torch.set_deterministic_debug_mode("error" if machine.deterministic else "default")
    # cuDNN's attention is prepared anew for every shape, which takes a second; the others are not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Filling memory that is about to be overwritten takes a tenth of a rollout.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    system = System.load(
        config,
        attacker=folders.attacker,
        target=folders.target,
        reference=folders.reference,
        is_trained=is_trained,
        may_differ=folders.may_differ,
        device=device,
        machine=Machine.here(
            device.type, keeps_freed_memory=keeps_freed_memory, num_threads=machine.num_threads
        ),
    )
    torch.set_num_threads(system.plan.num_threads)
    if executor is None:
        return system
    # The settings found here: a worker must not choose other threads or another precision.
    found = {"num_threads": system.plan.num_threads, "num_processes": 1}
    alike = partial(
        load_system,
        system.config,
        folders.resolve_paths(),
        machine=machine.model_copy(update=found),
        is_trained=is_trained,
        seed=seed,
    )
    crew = Crew(executor_of(executor), machine.prompts_per_shard, alike)
    crew.begin(system)
    return replace(system, crew=crew)


def build_sampler(
    rollouts: RolloutsConfiguration,
    reward: Choice,
    *,
    system: System,
    prompts: Sequence[Prompt],
    seed: int,
) -> Sampler:
    """The configured sampler with its own reward."""
    sampler: Sampler = build(
        "sampler",
        rollouts.sampler,
        system=system,
        prompts=prompts,
        reward=build("reward", reward),
        seed=seed,
        max_failed_fraction=rollouts.max_failed_fraction,
    )
    sampler.runs_per_prompt = rollouts.runs_per_prompt
    return sampler


def build_evaluator(
    evaluation: EvaluationConfiguration, reward: Choice, *, prompts: Sequence[Prompt], seed: int
) -> Evaluator:
    """The evaluation on these prompts, with its own reward."""
    return Evaluator(evaluation, prompts=prompts, reward=build("reward", reward), seed=seed)


def build_trainer(
    training: TrainingConfiguration,
    sampler: Sampler,
    *,
    evaluator: Evaluator | None,
    store: "CheckpointStore",
    first_graphs: Sequence[Graph] | None = None,
    world: "World | None" = None,
) -> "Trainer":
    """The configured trainer with its algorithm, ready to begin or to ``resume()``.

    Args:
        evaluator: Chooses the best attacker; None if none is evaluated.
        world: The processes that train together; None for this one alone.

    Raises ConfigurationError if an option cannot be used, or a plug-in's construction fails.
    """
    trainer: type[Trainer] = resolve("trainer", training.trainer.name)
    algorithm = trainer.algorithm_for(training, sampler.system)
    with plugin_call("trainer", training.trainer.name, "its construction"):
        return trainer(
            training,
            sampler,
            algorithm,
            evaluator=evaluator,
            store=store,
            first_graphs=first_graphs,
            world=world,
        )
