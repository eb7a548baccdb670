"""Models in GGUF, the format of llama.cpp, as Hugging Face folders."""

from pathlib import Path
from typing import Any

import torch

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.errors.packages import require_package
from astra_core.files import draft_folder_of
from astra_core.paths import found_at, is_file

_MAGIC = b"GGUF"


def convert_gguf(file: Path, folder: Path) -> int:
    """The number of parameters of a model, after its folder is written in 32 bits.

    The folder has safetensors, the tokenizer and its chat template, as all that reads models takes.

    ``file``: the GGUF; of a quantised model, the rounding of its weights stays.

    Raises ConfigurationError if the file is no GGUF that transformers reads, the folder holds
    something, or the package gguf is not installed.
    """
    if not is_file(file) or _beginning(file) != _MAGIC:
        got = f"another kind of file, '{file}'" if is_file(file) else found_at(file)
        msg = f"a model to import must be a GGUF file, got {got}; check the path"
        raise ConfigurationError(msg)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"--folder must be new or empty, got {found_at(folder)}; name another"
        raise ConfigurationError(msg)
    require_package("gguf", subject=f"a GGUF such as {file.name}", extra="gguf")
    try:
        model, tokenizer = _load(file)
    except Exception as error:  # a file from elsewhere may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = f"{file} must be a GGUF that transformers reads, got {reason}; take another file"
        raise ConfigurationError(msg) from error
    with draft_folder_of(folder) as draft:
        model.save_pretrained(str(draft))
        tokenizer.save_pretrained(str(draft))
    return int(model.num_parameters())


def _beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC))


def _load(file: Path) -> tuple[Any, Any]:
    """The model and its tokenizer, which can be saved."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    found, loading = AutoModelForCausalLM.from_pretrained(
        str(file.parent), dtype=torch.float32, output_loading_info=True, **where
    )
    if loading["missing_keys"]:
        # transformers would continue with random numbers instead.
        msg = f"no weights {min(loading['missing_keys'])}"
        raise ValueError(msg)
    # A model that was read from a GGUF refuses to be saved, so another gets its weights.
    del found.config.quantization_config
    with torch.device("meta"):
        model = type(found)(found.config)
    model.load_state_dict(found.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = found.generation_config
    return model, AutoTokenizer.from_pretrained(str(file.parent), **where)
