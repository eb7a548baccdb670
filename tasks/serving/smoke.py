"""Whether a version loads and writes, with local weights or weights at a service."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.tracking.registry.versions import stored_package
from tasks.tracking.store import one_line, quiet_pyfunc

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_CONTEXTS = ["Hello.", "How are you today?"]
_NEW_TOKENS = 8


def why_unusable(client: "MlflowClient", version: "ModelVersion") -> str | None:
    """Why the version cannot be champion, in one line; None if it loads and writes."""
    from astra_core.models.tokenizers import load_tokenizer
    from astra_parts.services.pointer import read_pointer

    try:
        with stored_package(client, version) as package:
            pointer = read_pointer(package.checkpoint)
            if pointer is None:
                write_probes(package.checkpoint, package.config)
            else:
                tokenizer = load_tokenizer(package.checkpoint)
                ids = [tokenizer(text)["input_ids"] for text in _CONTEXTS]
                pointer.try_out(ids, max_tokens=_NEW_TOKENS)
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody can sample from it
        return f"version {version.version} must load and write, got {one_line(error)}"
    return None


def write_probes(checkpoint: Path, config: Mapping[str, Any]) -> list[str]:
    """Two probes of a registered attacker, as the version would be served, by our own code.

    MLflow's own loader would run the code and unpickle the objects that lie beside the weights.
    """
    quiet_pyfunc()
    import pandas as pd
    from mlflow.pyfunc.model import PythonModelContext

    from tasks.serving.attacker_pyfunc import AttackerModel

    context = PythonModelContext(  # type: ignore[no-untyped-call]
        {"checkpoint": str(checkpoint)}, dict(config)
    )
    model = AttackerModel()
    model.load_context(context)
    asked = pd.DataFrame({"context": _CONTEXTS})
    return model.predict(context, asked, {"max_new_tokens": _NEW_TOKENS, "seed": 0})
