"""Adapters that a service gave out, added to the weights that they adapt.

They are low-rank pairs as PEFT writes them (arXiv:2106.09685): a matrix ``W`` becomes
``W + s · B A`` with ``s = alpha / rank``, or ``alpha / sqrt(rank)`` for rank-stabilised ones
(arXiv:2312.03732).
"""

import math
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

from astra_core.errors import TrainingError
from astra_core.errors.packages import require_package
from astra_core.files import read_json
from astra_parts.services.training_service import TrainingService

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
# Options about where adapters are and how they were made or trained, which do not affect the sum.
_TELLS = {
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "fan_in_fan_out",  # the model's own layers show it
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "target_modules",
    "task_type",
}
_ADDS = {"r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"}
# For each option the values with which only the low-rank pairs are added.
_ONLY = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # Other initialisations also change the base weights when training begins.
    "init_lora_weights": (True, False, "gaussian"),
}


def add_from(service: TrainingService, path: str, model: Any) -> None:
    """Adds the adapters at a path of the service to the model's own weights.

    Raises TrainingError if the service keeps them, or they do not fit. The model is then unchanged.
    """
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "weights.tar"
        if not service.download(path, archive):
            msg = (
                "trainer 'remote': the service must give its weights out to be exported, got "
                "none; set training.trainer.options.export: false"
            )
            raise TrainingError(msg)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        add_downloaded(model, Path(folder))


def add_downloaded(model: Any, folder: Path) -> None:
    """Adds ``s · B A`` of every adapted matrix to the model's own.

    ``folder``: a folder with ``adapter_config.json`` and ``adapter_model.safetensors`` somewhere
    below it, as PEFT writes them.

    Raises TrainingError if they are missing, have options that are unknown here, or adapt layers
    that the model does not have. The model is then unchanged.
    """
    files = sorted(folder.rglob("adapter_model.safetensors"))
    if len(files) != 1:
        msg = f"the service's archive must hold one adapter_model.safetensors, got {len(files)}"
        raise TrainingError(msg)
    config = read_json(files[0].parent / "adapter_config.json")
    _check(config)
    tensors = load_file(files[0])
    changes = [
        _change(model, name, tensors=tensors, config=config) for name in _adapted_layers(tensors)
    ]
    with torch.no_grad():
        for weight, change in changes:
            weight.add_(change.to(weight))


def _check(config: Mapping[str, Any]) -> None:
    """Checks that the options mean that only the low-rank pairs are added."""
    for name, value in config.items():
        known = _ONLY.get(name)
        is_known = name in _TELLS | _ADDS if known is None else value in known
        if not is_known and (known is not None or value):
            _refuse("have options that are known here", f"{name}: {value}")


def _adapted_layers(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of the adapted layers, in order."""
    names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
    pairs = {name + end for name in names for end in (_DOWN, _UP)}
    if odd := sorted(pairs ^ set(tensors)):
        _refuse("be pairs of lora_A and lora_B", odd[0])
    return names


def _change(
    model: Any, name: str, *, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer's weight and its change, in the same layout."""
    require_package("peft", subject="an adapter of a service", extra="lora")
    from peft.utils.other import get_pattern_key

    own, down, up = name.removeprefix(_PREFIX), tensors[name + _DOWN], tensors[name + _UP]
    patterns = config.get("alpha_pattern") or {}
    alpha = patterns.get(get_pattern_key(list(patterns), own), config["lora_alpha"])
    rank = down.shape[0]
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    change = scale * (up.float() @ down.float())
    layer = dict(model.named_modules()).get(own)
    if isinstance(layer, Conv1D):  # GPT-2 keeps its weights with the inputs first
        change = change.T
    # A matrix that is tied to another is listed only under the other's name.
    weight = dict(model.named_parameters()).get(f"{own}.weight")
    if not isinstance(layer, nn.Linear | Conv1D) or weight is None or weight.shape != change.shape:
        _refuse("fit the attacker's weights", own)
    return weight, change


def _refuse(rule: str, value: str) -> NoReturn:
    way = "set training.trainer.options.export: false"
    msg = f"the service's adapters must {rule}, got {value}; {way}"
    raise TrainingError(msg)
