"""Properties of a model's tokenizer, without its weights."""

import json
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.files import record_digest
from astra_core.models.folders import require_folder


def load_tokenizer(folder: Path | str) -> Any:
    """The tokenizer of a Hugging Face folder, also of one without weights; uses no network.

    Raises ConfigurationError if the folder holds no tokenizer that transformers can load.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        # One in plain Python lacks it, and with it the meaning of its ids.
        tokenizer.backend_tokenizer  # noqa: B018
        names = {*tokenizer.vocab_files_names.values(), "*.model", "tekken.json"}
    except Exception as error:  # the tokenizers library raises plain exceptions
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = (
            f"{folder} must hold a tokenizer (tokenizer.json, tokenizer_config.json), "
            f"got {reason}; save it there with save_pretrained"
        )
        raise ConfigurationError(msg) from error
    # Of the configuration alone transformers makes a tokenizer that knows hardly a token.
    if not any(any(Path(folder).glob(name)) for name in names):
        msg = (
            f"{folder} must hold a tokenizer's vocabulary, got no "
            f"{' and no '.join(sorted(names))}; save the tokenizer there with save_pretrained"
        )
        raise ConfigurationError(msg)
    return tokenizer


def tokenizer_digest(folder: Path | str) -> str:
    """A digest of the meaning of the ids of a Hugging Face folder's tokenizer.

    Raises ConfigurationError if the folder holds no tokenizer that transformers can load.
    """
    return record_digest(meaning_of_ids(load_tokenizer(require_folder(folder))))


def meaning_of_ids(tokenizer: Any) -> dict[str, Any]:
    """A tokenizer's state without padding and truncation, which each call sets."""
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return {key: state[key] for key in state if key not in {"padding", "truncation"}}


def separator_ids_of(tokenizer: Any, separator: str | None) -> tuple[int, ...]:
    """The ids that end an utterance: the separator's, or the end token if it is None.

    Raises ConfigurationError if there is no end token, or the separator encodes to nothing.
    """
    if separator is None:
        if tokenizer.eos_token_id is None:
            msg = "system.separator must be given, got null: the tokenizer has no end token"
            raise ConfigurationError(msg)
        return (tokenizer.eos_token_id,)
    ids = tuple(tokenizer(separator, add_special_tokens=False)["input_ids"])
    if not ids:
        msg = f"system.separator must encode to at least one token, got {separator!r}; try '\\n'"
        raise ConfigurationError(msg)
    return ids
