"""Files are complete or absent, even if the process is killed while it writes.

Each writer uses a temporary path beside the destination, flushes to disk and renames. A rename
within one folder is atomic. Only the owner can read the files: they may hold attacks, replies or
weights.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from astra_core.errors import DiskFullError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# safetensors, Arrow and SQLite report a full disk only in the text of the error.
_FULL_WORDS = (
    "no space left on device",
    "disk quota exceeded",
    "file too large",
    "disk is full",
    "(os error 28)",
)
_SHARED = 0o644
# C1 controls, marks and overrides of direction, line separators; JSON escapes the others itself.
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """A context for a write to ``path`` by any library.

    Raises DiskFullError if the disk is full; names it and the file.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DiskFullError) or not is_disk_full(error):
            raise
        raise disk_full(error, path) from error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that nothing more can be written."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if any(words in str(error).lower() for words in _FULL_WORDS):
        return True
    return error.__cause__ is not None and is_disk_full(error.__cause__)


def disk_full(error: BaseException, *paths: Path) -> DiskFullError:
    """The error that tells the user what to do.

    ``paths``: what may have been written, if the error does not name a file itself. Of several,
    here or in the error (a copy has two), the one on the fullest disk is named.
    """
    file, disk = min(
        ((path, _disk_of(path)) for path in _paths_in(error) or paths),
        key=lambda found: shutil.disk_usage(found[1]).free,
    )
    usage = shutil.disk_usage(disk)
    reason = " ".join(str(error).split())[:120]
    return DiskFullError(
        f"disk {disk} must have room for {file}, got {usage.free / 1e6:.1f} of "
        f"{usage.total / 1e6:.1f} MB free ({reason}); make room, for example with "
        "'dvc gc --workspace', or raise the quota, and start again"
    )


def _paths_in(error: BaseException | None) -> list[Path]:
    """The files that an error, or what caused it, names; none if none does."""
    if error is None:
        return []
    names = (getattr(error, name, None) for name in ("filename", "filename2"))
    # DVC and SQLAlchemy have attributes of these names that are something else.
    own = [Path(os.fsdecode(name)) for name in names if name and isinstance(name, str | bytes)]
    return own or _paths_in(error.__cause__)


def _disk_of(path: Path) -> Path:
    """The mount point of the disk that a path is on, or would be."""
    disk = path.absolute()
    while not os.path.ismount(disk):
        disk = disk.parent
    return disk


def flush_to_disk(path: Path) -> None:
    """Returns once the file or folder at ``path`` is on disk, not only in the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def draft_of(path: Path, *, is_shared: bool = False) -> Iterator[Path]:
    """Yields an empty file beside ``path``; it becomes ``path`` after a clean exit.

    ``is_shared``: true for a file without attacks, such as dvc.yaml, which others may read.

    Raises DiskFullError if the disk is full; names it and the file.
    """
    draft = path.with_name(f".{path.name}.partial")
    try:
        with room_for(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            # Made private before the first byte: a mode set later would leave it readable.
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield draft
            mode = 0o700 & draft.stat().st_mode
            if is_shared:
                mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _SHARED
            draft.chmod(mode)
            flush_to_disk(draft)
            draft.replace(path)
            flush_to_disk(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_folder_of(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside ``path``; it replaces ``path`` on a clean exit."""
    draft, stale = (path.with_name(f".{path.name}.{mark}") for mark in ("partial", "stale"))
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(stale, ignore_errors=True)
    try:
        with room_for(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.mkdir(mode=0o700)
            yield draft
            for file in sorted(draft.rglob("*")):
                if not file.is_symlink():
                    file.chmod(0o700 & file.stat().st_mode)
                flush_to_disk(file)
            flush_to_disk(draft)
            # The old folder is moved away first: removing takes time, and half of it must not show.
            if path.exists():
                path.replace(stale)
            draft.replace(path)
            flush_to_disk(path.parent)
            shutil.rmtree(stale, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_text(text: str, path: Path, *, is_shared: bool = False) -> None:
    """Writes exactly ``text`` to ``path`` in UTF-8; see ``draft_of``."""
    with draft_of(path, is_shared=is_shared) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(record: Any, path: Path) -> None:
    """Writes ``record`` to ``path`` as sorted, indented JSON that ends in a newline.

    Characters that control a terminal are escaped as in JSON, since a report may be printed.
    """
    text = json.dumps(record, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(_STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n", path)


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
