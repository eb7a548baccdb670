"""Parameters that were checked before, by the same code, are not checked again.

To check them all, the classes of plug-ins are imported, and torch with them: seconds in each stage
and command. Only what parameters, code and named files decide by themselves is remembered: not
where params.yaml names an address, a class of one's own or a device.
"""

import os
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from astra_core.errors import DiskFullError
from astra_core.files import folder_digest, read_json, record_digest, write_json
from tasks.params.plugins import texts_of
from tasks.params.schema import Params

FILE = Path(".astra/usable.json")
_MOST = 50
_CODE = Path(__file__).parents[2]
_PACKAGES = ("astra_core", "astra_parts", "tasks")
_LIBRARIES = ("torch", "transformers", "pydantic")


def verdict_key(params: Params) -> str | None:
    """The digest of all that decides whether these can be used; None where more than that does."""
    record = params.model_dump(mode="json")
    texts = list(texts_of(record))
    if not _is_alone(params) or any(map(_names_more, texts)):
        return None
    code = [_code_digest(_CODE / name) for name in _PACKAGES]
    libraries = [version(name) for name in _LIBRARIES]
    return record_digest([record, code, sys.version, libraries, list(map(_state, texts))])


@cache
def _code_digest(folder: Path) -> str:
    """Of the code as this process has loaded it: the next one sees what changes meanwhile."""
    return folder_digest(folder, keep=lambda path: path.suffix == ".py")


def is_known(key: str) -> bool:
    """Whether parameters with this key have passed the check before, in this working folder."""
    return key in _read_keys()


def remember(key: str) -> None:
    """Writes down that they pass; where nothing can be written, they are checked again."""
    known = [key, *(other for other in _read_keys() if other != key)]
    with suppress(OSError, DiskFullError):
        FILE.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(known[:_MOST], FILE)


def _read_keys() -> list[str]:
    try:
        found = read_json(FILE)
    except (OSError, ValueError):
        return []
    return [key for key in found if isinstance(key, str)] if isinstance(found, list) else []


def _is_alone(params: Params) -> bool:
    """Whether all that is used comes with the project."""
    return (
        {model.source for model in params.models.sources.values()} <= {"builtin", "folder"}
        and params.prompts.source in {"builtin", "file"}
        and params.system.target.name == "causal_lm"
        and params.machine.device != "cuda"
        and [sink.name for sink in params.tracking.sinks] == ["mlflow"]
    )


def _names_more(text: str) -> bool:
    """Whether it names a class or an address, which may be another one tomorrow; prose does not."""
    return re.search(r":\S", text) is not None


def _state(text: str) -> list[Any]:
    """The sizes and times of the files in what it names, if that is there."""
    if not text or not os.path.exists(text):  # noqa: PTH110 - of any text
        return []
    found = []
    for file in (Path(text), *sorted(Path(text).rglob("*"))):
        with suppress(OSError):
            found.append([str(file), file.stat().st_size, file.stat().st_mtime_ns])
    return found
