"""Adapters that a service gave out, added to the weights that they adapt."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from astra_core.errors import TrainingError
from astra_core.files import read_json

_PREFIX = "base_model.model."


def add_downloaded(model: Any, folder: Path) -> None:
    """Adds ``alpha / rank · B A`` of every adapted matrix to the model's own.

    Args:
        model: With the base weights.
        folder: Somewhere below it lie ``adapter_config.json`` and ``adapter_model.safetensors``,
            as PEFT writes them.

    Raises:
        TrainingError: They are not there, or adapt what the model does not have.
    """
    files = sorted(folder.rglob("adapter_model.safetensors"))
    if len(files) != 1:
        msg = f"the service's archive must hold one adapter_model.safetensors, got {len(files)}"
        raise TrainingError(msg)
    config = read_json(files[0].parent / "adapter_config.json")
    scale = config["lora_alpha"] / config["r"]
    tensors = load_file(files[0])
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, down in tensors.items():
            if not name.endswith(".lora_A.weight"):
                continue
            own = name.removeprefix(_PREFIX).removesuffix(".lora_A.weight") + ".weight"
            up = tensors[name.replace(".lora_A.", ".lora_B.")]
            if own not in weights or weights[own].shape != (up.shape[0], down.shape[1]):
                msg = f"the service's adapters must fit the attacker's weights, got {own}"
                raise TrainingError(msg)
            weights[own] += (scale * up.float() @ down.float()).to(weights[own])
