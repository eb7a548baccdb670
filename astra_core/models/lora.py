"""Low-rank adapters through peft: added, and merged into plain weights for the export."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from astra_core.config import LoraConfiguration
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.errors.packages import require_package
from astra_core.files import write_json, write_text
from astra_core.models.pretrained import weights_digest
from astra_core.seeding import derive_seed, torch_seeded

ADAPTERS = "adapter"
"""The folder, inside a model's own, with the adapters that its weights were merged from."""
_WEIGHTS = "adapter_model.safetensors"
_CONFIG = "adapter_config.json"
_BASE = "base_weights.txt"
"""Our own file there, with the digest of the weights that they were added to."""
_PREFIX = "base_model.model."
"""Of every name in a file of peft, whose model holds the base one so."""


def add_adapters(model: Any, config: LoraConfiguration, *, seed: int) -> None:
    """Adds adapters to the model in place; only they take a gradient, and at first change nothing.

    Raises ConfigurationError if no layer has one of the names, or peft is not installed.
    """
    require_package("peft", subject="training.lora", extra="lora", otherwise=" or set it to null")
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    targets = list(config.target_modules) if config.target_modules else "all-linear"
    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type,unused-ignore]
        target_modules=targets,
        lora_dropout=0.0,
        # GPT-2 stores its matrices the other way round.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    try:
        with torch_seeded(derive_seed(seed, "adapters")):
            inject_adapter_in_model(settings, model)
    except ValueError as error:
        reason = shorten(str(error).partition("\n")[0], limit=140)
        msg = (
            f"training.lora.target_modules must name linear layers, got {targets}: {reason}; "
            "null takes all"
        )
        raise ConfigurationError(msg) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    model.eval()


def save_adapters(model: Any, folder: Path, *, base: str) -> None:
    """Writes a model's adapters into the merged one's folder, in peft's form.

    ``base``: the digest of the weights without them, which is written too.
    """
    from peft import get_peft_model_state_dict
    from peft.tuners.lora import LoraLayer
    from safetensors.torch import save_file

    place, own = folder / ADAPTERS, model.peft_config["default"]
    layers = (name for name, module in model.named_modules() if isinstance(module, LoraLayer))
    # These bytes are in the model's digest, so what peft writes itself, which is its version, all
    # options and the place of the base, would name equal models differently.
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": own.r,
        "lora_alpha": own.lora_alpha,
        "fan_in_fan_out": own.fan_in_fan_out,
        "target_modules": sorted(layers),
        "inference_mode": True,
    }
    write_json(config, place / _CONFIG)
    write_text(base, place / _BASE)
    # By itself peft would look the base up, at the hub where it is not there.
    found = get_peft_model_state_dict(model, save_embedding_layers=False)
    save_file({f"{_PREFIX}{name}": tensor for name, tensor in found.items()}, place / _WEIGHTS)


def base_among(models: Iterable[Path], folder: Path) -> Path | None:
    """Which of these folders has the weights that the folder's adapters were added to.

    None if none has, or the adapters are not ours: a folder of that name may be another's.
    """
    place = folder / ADAPTERS
    if not all((place / name).is_file() for name in (_BASE, _CONFIG, _WEIGHTS)):
        return None
    told = (place / _BASE).read_text(encoding="utf-8", errors="replace")
    return next((own for own in models if weights_digest(own) == told), None)


def read_adapters(model: Any, folder: Path) -> None:
    """Gives the model the adapters that were saved, as its own where it has none.

    Raises ConfigurationError if they cannot be read.
    """
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    place = folder / ADAPTERS
    try:
        if not hasattr(model, "peft_config"):
            # Injecting draws first values, which must not advance the global generator.
            with torch_seeded(0):
                inject_adapter_in_model(LoraConfig.from_pretrained(str(place)), model)
        stored = load_file(place / _WEIGHTS).items()
        set_peft_model_state_dict(model, {name.removeprefix(_PREFIX): own for name, own in stored})
    except Exception as error:  # a damaged file may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = (
            f"{place} must hold adapters as they were saved, got {reason}; without it the merged "
            "weights are read"
        )
        raise ConfigurationError(msg) from error


def share_frozen(model: Any, *origins: Any) -> None:
    """Keeps each frozen weight that equals a frozen one of an origin in memory once.

    The adapters, and whatever differs, stay the model's own.
    """
    for origin in origins:
        theirs = {name.replace(".base_layer.", "."): own for name, own in origin.named_parameters()}
        for name, own in model.named_parameters():
            other = theirs.get(name.replace(".base_layer.", "."))
            if other is None or own.requires_grad or other.requires_grad:
                continue
            if own.device == other.device and own.dtype == other.dtype and torch.equal(own, other):
                own.data = other.data


def merged_state(model: Any) -> dict[str, Tensor] | None:
    """Weights with the adapters added in, by the names of the plain model; None without adapters.

    The model is unchanged: merging and unmerging in place would leave rounding in its weights.
    """
    if not any("lora_" in name for name, _ in model.named_parameters()):
        return None
    from peft.tuners.lora import LoraLayer

    state = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in model.state_dict().items()
        if not re.search(r"\.lora_\w+\.", name)
    }
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, LoraLayer):
                weight = f"{name}.weight"
                state[weight] = state[weight] + module.get_delta_weight("default")
    return state
