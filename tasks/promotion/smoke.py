"""Whether a version loads and writes, with local weights or weights at a service."""

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.serving.probes import write_probes
from tasks.tracking.registry.versions import stored_package
from tasks.tracking.store import one_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

    from astra_parts.services.pointer import ServicePointer

_CONTEXTS = ["Hello.", "How are you today?"]
_NEW_TOKENS = 8


def why_unusable(client: "MlflowClient", version: "ModelVersion") -> str | None:
    """Why the version cannot be champion, in one line; None if it loads and writes."""
    from astra_parts.services.pointer import read_pointer

    try:
        with stored_package(client, version) as package:
            pointer = read_pointer(package.checkpoint)
            if pointer is None:
                config = package.config
                write_probes(package.checkpoint, config, _CONTEXTS, max_new_tokens=_NEW_TOKENS)
            else:
                _ask(pointer, package.checkpoint)
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody can sample from it
        return f"version {version.version} must load and write, got {one_line(error)}"
    return None


def _ask(pointer: "ServicePointer", folder: Path) -> None:
    from astra_core.models.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(folder)
    ids = [tokenizer(text)["input_ids"] for text in _CONTEXTS]
    pointer.try_out(ids, max_tokens=_NEW_TOKENS)
