"""The state of a run as named tensors and a record: safetensors and JSON, no pickle."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from astra_core.errors import CheckpointError


def tensors_of(
    model: Module,
    optimizer: torch.optim.Optimizer,
    reward: Mapping[str, Tensor],
    algorithm: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Weights, optimiser moments, random state and memories under ``area/name``.

    Shared weights are stored once, because ``named_parameters`` names them once.
    """
    found = {f"model/{name}": p.detach().clone() for name, p in model.named_parameters()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            found[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone()
    found |= {f"reward/{name}": value.clone() for name, value in reward.items()}
    found |= {f"algorithm/{name}": value.clone() for name, value in algorithm.items()}
    found["random/torch"] = torch.get_rng_state()
    return found


def load_tensors(
    tensors: Mapping[str, Tensor], model: Module
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Puts weights and random state back; the reward's and the algorithm's tensors are returned.

    Raises:
        CheckpointError: The weights are of another model.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = tensors.get(f"model/{name}")
            if stored is None or stored.shape != parameter.shape:
                got = "nothing" if stored is None else f"shape {tuple(stored.shape)}"
                msg = (
                    f"checkpoint must hold {name} of shape {tuple(parameter.shape)}, got {got}; "
                    "start a new run for another model"
                )
                raise CheckpointError(msg)
            parameter.copy_(stored)
    torch.set_rng_state(tensors["random/torch"])
    return _below("reward/", tensors), _below("algorithm/", tensors)


def optimizer_record(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The optimiser's groups without weights: learning rates and options."""
    groups: list[dict[str, Any]] = optimizer.state_dict()["param_groups"]
    return groups


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    groups: list[dict[str, Any]],
    tensors: Mapping[str, Tensor],
) -> None:
    """Puts groups and moments back."""
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
