"""The state of a run as named tensors and a record: safetensors and JSON, no pickle."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Module

from astra_core.agents import FOLDER as _AGENTS, own_folder, separate_models
from astra_core.algorithm import Algorithm, restore, tensors_by_name
from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError
from astra_core.models.language_model import LanguageModel
from astra_core.registry import name_of
from astra_core.sampler import Sampler
from astra_core.system import System
from astra_core.training.checkpoint import Checkpoint
from astra_core.training.learner import Learner
from astra_core.training.optimization.parts import trained_weights
from astra_core.training.progress import Progress
from astra_core.training.resume.policy import EVALUATION_FIELDS, check_resumable, package_version
from astra_core.training.selection.stopping import Best, Stopping
from astra_core.training.update import Updates

_ADAPTERS = "adapters.safetensors"
# For a checkpoint that does not name the owner of its state.
_FIRST_OWNERS = ("reward", "algorithm")


class RunState:
    """The objects whose state a checkpoint saves and restores."""

    def __init__(
        self,
        config: TrainingConfiguration,
        sampler: Sampler,
        algorithm: Algorithm,
        *,
        updates: Updates,
        trainer: Any,
    ) -> None:
        self._config = config
        self._sampler = sampler
        self._algorithm = algorithm
        self._updates = updates
        self._trainer = trainer
        self._agents = AgentsState(sampler.system, updates.learners)

    def checkpoint(self, progress: Progress, best: Best, stopping: Stopping) -> Checkpoint:
        """Everything that a run needs to resume, in its present state."""
        record = {
            # A figure of an evaluation need not be finite.
            **as_json(progress.record(), subject="a run"),
            **self._identity(),
            "best": as_json(best.record(), subject="a run"),
            "stopping": stopping.record(),
            **learner_record(self._updates.learners[0]),
            "owners": [*self._owners],
            **self._agents.record(),
        }
        memories = {kind: tensors_by_name(kind, owner) for kind, owner in self._owners.items()}
        shards = self._updates.shards
        model = shards.model if shards else self._attacker.model
        tensors = tensors_of(model, self._updates.optimizer, memories)
        tensors |= self._agents.tensors()
        return Checkpoint(progress.training_step, tensors, record, progress.is_partial)

    def load(
        self, checkpoint: Checkpoint, best: Best, stopping: Stopping, *, subject: str
    ) -> tuple[Progress, dict[str, tuple[Any, Any]]]:
        """The progress and the configuration fields that differ, after a checkpoint is restored.

        Raises:
            CheckpointError: It belongs to another run; see ``astra_core.training.resume.policy``.
        """
        record = dict(checkpoint.record)
        subject = f"{subject}/{checkpoint.name}"
        held = frozenset() if self._updates.metric is None else EVALUATION_FIELDS
        changed = check_resumable(record, self._identity(), subject=subject, held=held)
        load_tensors(checkpoint.tensors, self._attacker.model)
        for kind in record.get("owners", _FIRST_OWNERS):
            restore(kind, self._owners[kind], _below(f"{kind}/", checkpoint.tensors))
        restore_learner(self._updates.learners[0], record, checkpoint.tensors)
        self._agents.load(record, checkpoint.tensors)
        self._updates.scatter()
        best.load(from_json(record["best"]))
        stopping.load(record["stopping"])
        return Progress.of(from_json(record)), changed

    def write_model(self, folder: Path) -> None:
        """A Hugging Face folder of the attacker; of adapters only they, which are small."""
        if self._config.lora is None:
            self._sampler.system.save(folder)
            return
        for place, model in models_below(folder, self._sampler.system).items():
            place.mkdir(parents=True, exist_ok=True)
            weights = trained_weights(model, ())
            save_file({name: p.detach() for name, p in weights.items()}, place / _ADAPTERS)

    def read_model(self, folder: Path) -> None:
        """Loads the weights of such a folder into the attacker."""
        for place, own in models_below(folder, self._sampler.system).items():
            if self._config.lora is not None:
                weights = load_file(place / _ADAPTERS)
            else:
                separator = self._sampler.system.config.separator
                weights = LanguageModel.load(place, separator=separator).model.state_dict()
            with torch.no_grad():
                own.load_state_dict(weights, strict=self._config.lora is None)

    def _identity(self) -> dict[str, Any]:
        return {
            "config": self._config.model_dump(mode="json"),
            "algorithm": name_of("algorithm", type(self._algorithm)),
            "version": package_version(),
            "seed": self._sampler.seed,
            "system": self._sampler.system.training_digest(),
        }

    @property
    def _owners(self) -> dict[str, Any]:
        """The plug-ins whose ``state()`` is in a checkpoint, by kind."""
        found = {
            "reward": self._sampler.reward,
            "algorithm": self._algorithm,
            "sampler": self._sampler,
            "trainer": self._trainer,
        }
        ahead = self._trainer.harness.ahead
        return found if ahead is None else {**found, "ahead": ahead}

    @property
    def _attacker(self) -> LanguageModel:
        return self._sampler.system.attacker


class AgentsState:
    """The state of all agents but the first in a checkpoint; nothing for one attacker.

    ``learners``: their learners; the first one's state is the checkpoint's own.
    """

    def __init__(self, system: System, learners: Sequence[Learner]) -> None:
        self._learners = {learner.name: learner for learner in learners[1:]}
        first = {id(weight) for weight in system.attacker.model.parameters()}
        # Shared weights belong to the first agent.
        self._weights = {
            f"{_AGENTS}/{agent}/model/{name}": weight
            for agent, model in separate_models(system.agents).items()
            for name, weight in trained_weights(model.model, ()).items()
            if id(weight) not in first
        }

    def record(self) -> dict[str, Any]:
        """Optimisers and schedules for the record; empty if there is only one."""
        found = {name: learner_record(learner) for name, learner in self._learners.items()}
        return {_AGENTS: found} if found else {}

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments."""
        found = {name: weight.detach().clone() for name, weight in self._weights.items()}
        for name, learner in self._learners.items():
            for moment, value in moments_of(learner.optimizer).items():
                found[f"{_AGENTS}/{name}/{moment}"] = value
        return found

    def load(self, record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restores them."""
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(tensors[name])
        for name, learner in self._learners.items():
            below = _below(f"{_AGENTS}/{name}/", tensors)
            restore_learner(learner, record[_AGENTS][name], below)


def learner_record(learner: Learner) -> dict[str, Any]:
    """Its optimiser's groups and its schedule's state, as JSON."""
    subject = f"schedule '{learner.schedule_name}'"
    return {
        "optimizer": optimizer_record(learner.optimizer),
        "schedule": as_json(learner.schedule.state_dict(), subject=subject),
    }


def restore_learner(
    learner: Learner, record: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Restores optimiser and schedule from a ``learner_record`` and the moments among tensors."""
    restore_optimizer(learner.optimizer, record["optimizer"], tensors)
    learner.schedule.load_state_dict(from_json(record["schedule"]))


def models_below(folder: Path, system: System) -> dict[Path, Module]:
    """Every attacker's model by its place in a folder that ``System.save`` wrote."""
    return {
        (own_folder(folder, name) if name else folder): model.model
        for name, model in system.learners().items()
    }


def moments_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's moments of each weight, under ``optimizer/index/name``."""
    return {
        f"optimizer/{index}/{name}": torch.as_tensor(value).detach().clone()
        for index, moments in optimizer.state_dict()["state"].items()
        for name, value in moments.items()
    }


def tensors_of(
    model: Module, optimizer: torch.optim.Optimizer, memories: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Trained weights, optimiser moments, random state and memories under ``area/name``.

    Shared weights are stored once, because ``named_parameters`` names them once.
    """
    found = {f"model/{name}": p.detach().clone() for name, p in trained_weights(model, ()).items()}
    found |= moments_of(optimizer)
    for kind, memory in memories.items():
        found |= {f"{kind}/{name}": value.clone() for name, value in memory.items()}
    found["random/torch"] = torch.get_rng_state()
    return found


def load_tensors(tensors: Mapping[str, Tensor], model: Module) -> None:
    """Restores weights and random state.

    Raises CheckpointError if the weights belong to another model.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = tensors.get(f"model/{name}")
            if stored is None and not parameter.requires_grad:
                continue
            if stored is None or stored.shape != parameter.shape:
                got = "nothing" if stored is None else f"shape {tuple(stored.shape)}"
                msg = (
                    f"checkpoint must hold {name} of shape {tuple(parameter.shape)}, got {got}; "
                    "start a new run for another model"
                )
                raise CheckpointError(msg)
            parameter.copy_(stored)
    torch.set_rng_state(tensors["random/torch"])


def optimizer_record(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The optimiser's groups without weights: learning rates and options."""
    groups: list[dict[str, Any]] = optimizer.state_dict()["param_groups"]
    return groups


def restore_optimizer(
    optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]], tensors: Mapping[str, Tensor]
) -> None:
    """Restores groups and moments."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in _below("optimizer/", tensors).items():
        index, _, moment = name.partition("/")
        state.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


_KIND, _VALUE = "$kind", "$value"


def as_json(value: Any, *, subject: str) -> Any:
    """The value as JSON; tuples become lists.

    Raises CheckpointError if something in it is not a plain value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {_KIND: "float", _VALUE: str(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [as_json(each, subject=subject) for each in value]
    if isinstance(value, Mapping):
        pairs = [(key, as_json(each, subject=subject)) for key, each in value.items()]
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        keys = [as_json(key, subject=subject) for key, _ in pairs]
        return {_KIND: "pairs", _VALUE: [[k, v] for k, (_, v) in zip(keys, pairs, strict=True)]}
    msg = (
        f"{subject} must have a state of numbers, texts, lists and mappings, got a "
        f"{type(value).__name__} in it; override its state_dict"
    )
    raise CheckpointError(msg)


def from_json(value: Any) -> Any:
    """The value that ``as_json`` was given, with lists for tuples."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {_KIND, _VALUE}:
        return {key: from_json(each) for key, each in value.items()}
    if value[_KIND] == "float":
        return float(value[_VALUE])
    return {from_json(key): from_json(each) for key, each in value[_VALUE]}
