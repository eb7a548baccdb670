"""Files appear whole or not at all, whatever moment the process is killed at.

Each writer works beside the destination, flushes to disk and renames. A rename within one folder is
atomic; the draft is not made by ``tempfile``, whose files would be readable by their owner alone.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def flush_to_disk(path: Path) -> None:
    """Returns once the file or folder at ``path`` is on disk, not only in the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yields a file name beside ``path``; what was written there is ``path`` after a clean exit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.partial")
    draft.unlink(missing_ok=True)
    try:
        yield draft
        flush_to_disk(draft)
        draft.replace(path)
        flush_to_disk(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_folder_of(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside ``path``; it replaces ``path`` on a clean exit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, stale = (path.with_name(f".{path.name}.{mark}") for mark in ("partial", "stale"))
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(stale, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        for file in sorted(draft.rglob("*")):
            flush_to_disk(file)
        flush_to_disk(draft)
        # Moved aside first: a removal takes its time, and half of a folder must never be seen.
        if path.exists():
            path.replace(stale)
        draft.replace(path)
        flush_to_disk(path.parent)
        shutil.rmtree(stale, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_text(text: str, path: Path) -> None:
    """Leaves ``path`` holding exactly ``text`` in UTF-8."""
    with draft_of(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(record: Any, path: Path) -> None:
    """Leaves ``path`` holding ``record`` as sorted, indented JSON that ends in a newline."""
    text = json.dumps(record, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(text + "\n", path)


def read_json(path: Path) -> Any:
    """The record in the JSON file at ``path``."""
    return json.loads(path.read_text(encoding="utf-8"))


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path, *, keep: Callable[[Path], bool] = lambda _: True) -> str:
    """SHA-256 over the names and bytes of the files below a folder that ``keep`` accepts."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and keep(path)):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file_digest(file)}\n".encode())
    return digest.hexdigest()


def record_digest(record: Any) -> str:
    """SHA-256 of a JSON-like record in its canonical form; equal records have equal digests."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
