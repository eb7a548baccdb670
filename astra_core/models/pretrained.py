"""Hugging Face folders: loading, naming by digest, and where on the machine models are run."""

import os
from pathlib import Path
from typing import Any, Literal

import torch

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.files import folder_digest
from astra_core.models.folders import require_folder
from astra_core.models.tokenizers import load_tokenizer
from astra_core.training.distribution.launch import local_rank, local_world_size

# Above this many parameters a matrix product is long enough to pay for a second thread.
_PARAMETERS_PER_THREAD = 5_000_000

Dtype = Literal["float32", "bfloat16", "float16"]
"""Of the weights of a model that does not learn."""


def load_pretrained(
    folder: Path | str,
    *,
    dtype: Dtype = "float32",
    device_map: str | None = None,
    weights: Path | None = None,
) -> tuple[Any, Any]:
    """The model and the tokenizer of a Hugging Face folder; never asks the network.

    Args:
        device_map: How accelerate spreads them over devices; None leaves them on the CPU.
        weights: Another folder, whose weights and configuration are taken instead.

    Raises ConfigurationError if the folder does not hold a causal LM that transformers can load.
    """
    from transformers import AutoModelForCausalLM

    require_folder(folder)
    spread = {} if device_map is None else {"device_map": device_map}
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            str(weights or folder),
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            local_files_only=True,
            # transformers would otherwise ask whether to run code in the folder, and wait.
            trust_remote_code=False,
            **spread,
        )
    except Exception as error:  # a damaged folder may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = f"{folder} must be a Hugging Face causal LM with safetensors, got {reason}; check it"
        raise ConfigurationError(msg) from error
    tokenizer = load_tokenizer(folder)
    if loading["mismatched_keys"]:
        name, found, wanted = min(loading["mismatched_keys"])
        msg = (
            f"{folder}: the weights must have the sizes of config.json, got {name} of "
            f"{tuple(found)} where it says {tuple(wanted)}; check both"
        )
        raise ConfigurationError(msg)
    if loading["missing_keys"]:
        # transformers would continue with random numbers instead, and a warning.
        missing = sorted(loading["missing_keys"])
        msg = f"{folder} must hold every weight, got no {missing[0]} of {len(missing)}; check it"
        raise ConfigurationError(msg)
    return model, tokenizer


def threads_for(num_parameters: int, requested: int) -> int:
    """How many torch threads pay off for a model of this size; a request above 0 is obeyed.

    Below a few million parameters dispatch dominates a step, and a second thread that waits on a
    busy core turns seconds into minutes. Processes that train together share the cores.
    """
    if requested:
        return requested
    available = len(os.sched_getaffinity(0)) // local_world_size()
    return max(1, min(available, num_parameters // _PARAMETERS_PER_THREAD))


def device_for(requested: str) -> torch.device:
    """The device that ``auto``, ``cpu`` or ``cuda`` means in this process.

    Of the processes that torchrun starts on a machine, each has a CUDA device of its own.

    Raises ConfigurationError if there is no CUDA device, or none for this process.
    """
    num_devices = torch.cuda.device_count() if requested != "cpu" else 0
    if requested == "cpu" or (requested == "auto" and not num_devices):
        return torch.device("cpu")
    if not num_devices:
        msg = (
            "machine.device must be 'cpu' or 'auto' where there is no CUDA device, got 'cuda'; "
            "'astra doctor' shows what torch sees"
        )
        raise ConfigurationError(msg)
    index = local_rank()
    if index >= num_devices:
        msg = (
            f"machine.num_processes must be at most {num_devices}, one for each CUDA device, "
            f"got process {index + 1}; lower it, or set machine.device to 'cpu'"
        )
        raise ConfigurationError(msg)
    return torch.device("cuda", index)


def weights_digest(folder: Path) -> str:
    """SHA-256 over the weights, configuration and tokenizer of a Hugging Face folder."""
    kept = {".safetensors", ".json", ".model", ".txt"}
    return folder_digest(
        folder, keep=lambda path: path.suffix in kept and path.name != "astra.json"
    )
