"""Checks of a Hugging Face folder; an error names the file and the key.

The library reports most mistakes late, in many lines, or by a crash in a matrix product.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt, shorten
from astra_core.models.folders import require_folder
from astra_core.models.tokenizers import load_tokenizer
from astra_core.paths import is_file, kind_of

# Architectures' different names for the same size.
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_OTHERS = ("vocab_size", "num_key_value_heads", "head_dim", "max_position_embeddings")
_ROTARY_PARTS = ("rope_parameters", "rope_scaling")
_ROTARY = ("rope_theta", "factor", "partial_rotary_factor")
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# Far beyond any model; a layer is built before its weights are read.
_MOST = {**dict.fromkeys(_LAYERS, 2_000), **dict.fromkeys(_HEADS, 100_000)}
_MOST_OF_ALL = 1 << 31

_NO_PADDING = -1  # early Llama folders have this instead of null
_REASON_LIMIT = 120


def check_folder(folder: Path) -> None:
    """Checks that the files of the folder are consistent, as far as visible without loading it.

    Its ConfigurationError names the inconsistent file and key.
    """
    require_folder(folder)
    config = _record(folder / "config.json")
    _check_sizes(config, folder / "config.json")
    _check_ids(config, config.get("vocab_size"), folder / "config.json")
    _check_quantization(config, folder / "config.json")
    _check_rope(config, folder / "config.json")
    if (folder / "generation_config.json").exists():
        generation = _record(folder / "generation_config.json")
        _check_ids(generation, config.get("vocab_size"), folder / "generation_config.json")
    _check_model_type(config, folder / "config.json")
    _check_architecture(folder)
    for file in _weight_files(folder):
        _check_weights(file)
    load_tokenizer(folder)


def check_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Checks that the loaded model has finite weights and a row for every id, and can read.

    Its ConfigurationError names what is wrong.
    """
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise _error(folder, "must hold finite weights", f"NaN or infinity in {name}")
    num_known = int(model.get_input_embeddings().weight.shape[0])
    token, last = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if last >= num_known:
        rule = f": every id of the tokenizer must be below vocab_size = {num_known} of config.json"
        raise _error(folder, rule, f"{last} for {excerpt(token)}")
    try:
        ids = torch.arange(min(4, num_known))[None]
        with torch.no_grad():
            is_finite = bool(torch.isfinite(model(input_ids=ids).logits).all())
    except Exception as error:  # inconsistent sizes may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=_REASON_LIMIT)
        raise _error(folder / "config.json", "must describe a model that reads", reason) from error
    if not is_finite:
        raise _error(folder, "must give finite log-probabilities", "NaN or infinity")


def _error(
    subject: Path, rule: str, got: object, *, way_out: str = "correct the folder or name another"
) -> ConfigurationError:
    """A rule that begins with a colon is about a key of the file."""
    between = "" if rule.startswith(":") else " "
    return ConfigurationError(f"{subject}{between}{rule}, got {got}; {way_out}")


def _record(file: Path) -> dict[str, Any]:
    if not is_file(file):
        raise _error(file, "must be a file", kind_of(file))
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = shorten(str(error), limit=_REASON_LIMIT)
        raise _error(file, "must be JSON", reason) from error
    if not isinstance(found, dict):
        raise _error(file, "must be a JSON object", type(found).__name__)
    return found


def _check_sizes(config: Mapping[str, Any], file: Path) -> None:
    if not isinstance(config.get("model_type"), str):
        got = excerpt(config.get("model_type"))
        raise _error(file, ": model_type must name an architecture", got)
    sizes = {
        key: _size(key, config[key], file)
        for key in (*_WIDTHS, *_HEADS, *_LAYERS, *_OTHERS)
        if config.get(key) is not None
    }
    width, heads = _first(sizes, _WIDTHS), _first(sizes, _HEADS)
    if width and heads and "head_dim" not in sizes and sizes[width] % sizes[heads]:
        rule = f": {width} = {sizes[width]} must be a multiple of {heads}"
        raise _error(file, rule, sizes[heads])
    groups = sizes.get("num_key_value_heads", 1)
    if heads and sizes[heads] % groups:
        rule = f": {heads} = {sizes[heads]} must be a multiple of num_key_value_heads"
        raise _error(file, rule, groups)


def _check_quantization(config: Mapping[str, Any], file: Path) -> None:
    """Raises unless the weights are plain, or quantised in a way that transformers knows."""
    for key in ("quantization_config", "compression_config"):
        own = config.get(key)
        if own is None:
            continue
        from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

        method = own.get("quant_method") if isinstance(own, dict) else own
        # Early folders of bitsandbytes have its switches alone.
        is_early = isinstance(own, dict) and (own.get("load_in_4bit") or own.get("load_in_8bit"))
        if not is_early and (not isinstance(method, str) or method not in AUTO_QUANTIZER_MAPPING):
            rule = "quant_method must be one that transformers knows, such as 'bitsandbytes'"
            raise _error(file, f": {key}.{rule}", excerpt(method))


def _check_rope(config: Mapping[str, Any], file: Path) -> None:
    """Raises unless every number of the rotary positions is one."""
    found = [("", {key: config.get(key) for key in ("rope_theta", *_ROTARY_PARTS)})]
    while found:
        place, record = found.pop()
        for key, value in record.items():
            if isinstance(value, dict):
                found.append((f"{place}{key}.", value))
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if key in _ROTARY and value is not None and not (is_number and 0 < value < math.inf):
                raise _error(file, f": {place}{key} must be a number above 0", excerpt(value))


def _check_model_type(config: Mapping[str, Any], file: Path) -> None:
    from transformers import CONFIG_MAPPING

    if config["model_type"] in CONFIG_MAPPING:
        return
    if config.get("auto_map"):
        got = "a model_type that only code in the folder knows, which is never run"
        way_out = "name a model that transformers knows"
        raise _error(file, ": auto_map must not be needed", got, way_out=way_out)
    rule = ": model_type must be one that transformers knows"
    raise _error(file, rule, excerpt(config["model_type"]))


def _check_architecture(folder: Path) -> None:
    """Checks that the architecture is a known causal LM and every key has its type."""
    from transformers import AutoConfig, AutoModelForCausalLM

    file = folder / "config.json"
    try:
        config = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # each architecture has its own checks
        lines = str(error).splitlines() or [""]
        # The last line names a key of the wrong type, the first line any other mistake.
        line = lines[-1] if "field '" in lines[0] or lines[0].endswith(":") else lines[0]
        reason = shorten(line, limit=_REASON_LIMIT)
        raise _error(file, "must describe a model of transformers", reason) from error
    if type(config) not in AutoModelForCausalLM._model_mapping:  # noqa: SLF001 - its only name
        raise _error(file, ": model_type must be a causal LM", repr(config.model_type))
    named = config.architectures if isinstance(config.architectures, list) else []
    if named and not getattr(config, "is_decoder", False) and not any(map(_may_be_causal, named)):
        raise _error(file, ": architectures must name a causal LM", excerpt(named[0]))
    try:
        with torch.device("meta"):  # without weights, as transformers does before it reads them
            AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # a word that an architecture does not know, mostly a KeyError
        reason = f"{type(error).__name__}: {shorten(str(error), limit=_REASON_LIMIT)}"
        raise _error(file, "must describe a model that can be built", reason) from error


def _may_be_causal(architecture: str) -> bool:
    """Whether transformers reads on from a text with it, or does not know this name."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    # Of a base model, its missing weights tell; pictures may be read by a causal LM, too.
    mappings = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    )
    is_known = hasattr(transformers, str(architecture))
    return not is_known or any(architecture in mapping.values() for mapping in mappings)


def _size(key: str, value: Any, file: Path) -> int:
    most = _MOST.get(key, _MOST_OF_ALL)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _error(file, f": {key} must be a number from 1 to {most}", excerpt(value))
    return value


def _first(sizes: Mapping[str, int], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in sizes), None)


def _check_ids(record: Mapping[str, Any], vocab_size: int | None, file: Path) -> None:
    for key in _IDS:
        written = record.get(key)
        for number in written if isinstance(written, list) else [written]:
            if number is None or (key == "pad_token_id" and number == _NO_PADDING):
                continue
            is_number = isinstance(number, int) and not isinstance(number, bool)
            if not is_number or not 0 <= number < (vocab_size or _MOST_OF_ALL):
                most = f"vocab_size = {vocab_size}" if vocab_size else "the vocabulary's size"
                raise _error(file, f": {key} must be an id below {most}", excerpt(number))


def _weight_files(folder: Path) -> Iterator[Path]:
    """The safetensors that transformers would read."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        yield folder / "model.safetensors"
        return
    shards = _record(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise _error(index, ": weight_map must name a file for each weight", "others")
    yield from (folder / name for name in sorted(set(shards.values())))


def _check_weights(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    if not is_file(file):
        pickled = sorted(path.name for path in file.parent.glob("*.bin"))
        found = f"only {pickled[0]}, a pickle" if pickled else kind_of(file)
        raise _error(
            file, "must be a file of safetensors", found, way_out="save it with save_pretrained"
        )
    try:
        with safe_open(str(file), framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        reason = shorten(str(error), limit=_REASON_LIMIT)
        raise _error(file, "must be whole safetensors", reason, way_out="copy it again") from error
