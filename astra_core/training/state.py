"""The state of a run as named tensors and a record: safetensors and JSON, no pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Module

from astra_core.algorithm import Algorithm
from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError
from astra_core.extensions.promises import restore, tensors_by_name
from astra_core.models.language_model import LanguageModel
from astra_core.registry import name_of
from astra_core.sampler import Sampler
from astra_core.training.checkpoint import Checkpoint
from astra_core.training.plain_values import as_json, from_json
from astra_core.training.progress import Progress
from astra_core.training.resume_policy import (
    EVALUATION_FIELDS,
    check_resumable,
    package_version,
)
from astra_core.training.stopping import Best, Stopping
from astra_core.training.update import Updates

_ADAPTERS = "adapters.safetensors"
# Of a checkpoint that does not say whose state it holds.
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

    def checkpoint(self, progress: Progress, best: Best, stopping: Stopping) -> Checkpoint:
        """Everything that a run needs to resume, as it is now."""
        record = {
            **progress.record(),
            **self._identity(),
            "best": best.record(),
            "stopping": stopping.record(),
            "optimizer": optimizer_record(self._updates.optimizer),
            "schedule": as_json(
                self._updates.schedule.state_dict(),
                subject=f"schedule '{self._config.schedule.name}'",
            ),
            "owners": [*self._owners],
        }
        memories = {kind: tensors_by_name(kind, owner) for kind, owner in self._owners.items()}
        tensors = tensors_of(self._attacker.model, self._updates.optimizer, memories)
        return Checkpoint(progress.training_step, tensors, record, progress.is_partial)

    def load(
        self, checkpoint: Checkpoint, best: Best, stopping: Stopping, *, subject: str
    ) -> tuple[Progress, dict[str, tuple[Any, Any]]]:
        """Restores a checkpoint; returns the progress and the configuration fields that differ.

        Raises:
            CheckpointError: It is of another run; see ``astra_core.training.resume_policy``.
        """
        record = dict(checkpoint.record)
        subject = f"{subject}/{checkpoint.name}"
        held = frozenset() if self._updates.metric is None else EVALUATION_FIELDS
        changed = check_resumable(record, self._identity(), subject=subject, held=held)
        load_tensors(checkpoint.tensors, self._attacker.model)
        for kind in record.get("owners", _FIRST_OWNERS):
            restore(kind, self._owners[kind], _below(f"{kind}/", checkpoint.tensors))
        restore_optimizer(self._updates.optimizer, record["optimizer"], checkpoint.tensors)
        self._updates.schedule.load_state_dict(from_json(record["schedule"]))
        best.load(record["best"])
        stopping.load(record["stopping"])
        return Progress.of(record), changed

    def write_model(self, folder: Path) -> None:
        """A Hugging Face folder of the attacker; adapters are merged, and kept beside it."""
        self._attacker.save(folder)
        if self._config.lora is not None:
            weights = _trained(self._attacker.model)
            save_file({name: p.detach() for name, p in weights.items()}, folder / _ADAPTERS)

    def read_model(self, folder: Path) -> None:
        """Loads the weights of such a folder into the attacker."""
        own = self._attacker.model
        if self._config.lora is not None:
            weights = load_file(folder / _ADAPTERS)
        else:
            separator = self._sampler.system.config.separator
            weights = LanguageModel.load(folder, separator=separator).model.state_dict()
        with torch.no_grad():
            own.load_state_dict(weights, strict=self._config.lora is None)

    def _identity(self) -> dict[str, Any]:
        return {
            "config": self._config.model_dump(mode="json"),
            "algorithm": name_of("algorithm", type(self._algorithm)),
            "version": package_version(),
            "seed": self._sampler.seed,
            "system": self._sampler.system.digest(),
        }

    @property
    def _owners(self) -> dict[str, Any]:
        """Whose ``state()`` is in a checkpoint, by the kind of plug-in."""
        return {
            "reward": self._sampler.reward,
            "algorithm": self._algorithm,
            "sampler": self._sampler,
            "trainer": self._trainer,
        }

    @property
    def _attacker(self) -> LanguageModel:
        return self._sampler.system.attacker


def tensors_of(
    model: Module,
    optimizer: torch.optim.Optimizer,
    memories: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """Trained weights, optimiser moments, random state and memories under ``area/name``.

    Shared weights are stored once, because ``named_parameters`` names them once.
    """
    found = {f"model/{name}": p.detach().clone() for name, p in _trained(model).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            found[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone()
    for kind, memory in memories.items():
        found |= {f"{kind}/{name}": value.clone() for name, value in memory.items()}
    found["random/torch"] = torch.get_rng_state()
    return found


def load_tensors(tensors: Mapping[str, Tensor], model: Module) -> None:
    """Restores weights and random state.

    Raises:
        CheckpointError: The weights are of another model.
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
    optimizer: torch.optim.Optimizer,
    groups: list[dict[str, Any]],
    tensors: Mapping[str, Tensor],
) -> None:
    """Restores groups and moments."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in _below("optimizer/", tensors).items():
        index, _, moment = name.partition("/")
        state.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _trained(model: Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
