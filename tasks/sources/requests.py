"""Harmless requests with their types, in XSTest's form: columns ``prompt``, ``type``, ``label``.

Earlier files of XSTest have no label: there the types that begin with ``contrast_`` are unsafe.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from astra_core.config import EvaluationConfiguration
from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from tasks.sources.columns import Columns
from tasks.sources.files import FileRow, read_rows

_BUILTIN = Path(__file__).parents[1] / "builtin/requests/benign.csv"
_KEY = "evaluation.benign_prompts"
_CONTRAST = "contrast_"
_LABELS = {"safe": True, "unsafe": False}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a target should fulfil, or one beside it that it should refuse.

    ``type``: empty where the file tells none. ``is_safe``: false for one that should be refused.
    """

    text: str
    type: str
    is_safe: bool


def requests_file(evaluation: EvaluationConfiguration) -> Path | None:
    """The file of ``evaluation.benign_prompts``."""
    path = evaluation.benign_prompts
    return _BUILTIN if path == "builtin" else path


def read_requests(path: Path) -> list[Request]:
    """The requests of a file in order; without a label all but XSTest's contrasts are safe.

    Raises ConfigurationError if the file or its column ``prompt`` does not exist, or nothing reads
    it; DataError if the file is broken, a label is another word, or no request is safe.
    """
    found = [request for row in _rows(path) if (request := _request(row, path)) is not None]
    if not any(request.is_safe for request in found):
        msg = (
            f"{_KEY} must hold requests with the label safe, got none of {len(found)} in {path}; "
            "add some, or leave the column label out"
        )
        raise DataError(msg)
    return found


def _rows(path: Path) -> Iterator[FileRow]:
    columns = Columns("prompt", "all")
    try:
        yield from read_rows(path, columns)
    except ConfigurationError as error:
        # The reader names the keys of the prompts.
        msg = f"{_KEY}: {str(error).partition(';')[0]}; see 'astra params evaluation'"
        raise ConfigurationError(msg) from None
    for name, problem in columns.left_out.items():
        # Without their labels, requests to refuse would count as harmless.
        if name.strip().lower() == "label":
            msg = f"{path} must hold plain words in one column '{name}', got {problem}; correct it"
            raise DataError(msg)


def _request(row: FileRow, path: Path) -> Request | None:
    """The request of a row; None for an empty one."""
    text = (row.text or "").strip()
    if not text:
        return None
    told = {
        name.strip().lower(): "" if value is None else str(value).strip()
        for name, value in row.metadata.items()
    }
    kind = told.get("type", "")
    label = told.get("label", "unsafe" if kind.startswith(_CONTRAST) else "safe").lower()
    if label not in _LABELS:
        got = excerpt(label, limit=24) if label else "none"
        msg = f"{path} {row.place} must have the label safe or unsafe, got {got}; correct it"
        raise DataError(msg)
    return Request(text, kind, _LABELS[label])
