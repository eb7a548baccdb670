"""What exists at a path from a user; never raises, whatever the name."""

import errno
import os
import stat
from pathlib import Path

from astra_core.errors.exception_text import excerpt

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REASONS = {
    errno.ENOENT: "nothing there",
    errno.ENOTDIR: "below a file",
    errno.ENAMETOOLONG: "a name that is too long",
    errno.ELOOP: "links in a circle",
    errno.EACCES: "no permission",
}
NUL = "a name with a NUL character"
LOST = frozenset({NUL, _REASONS[errno.ENAMETOOLONG], _REASONS[errno.ELOOP]})
"""Kinds of names at which nothing can exist."""


def kind_of(path: Path | str) -> str:
    """``a file``, ``a folder``, ``a pipe`` ..., or why nothing can be found there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - Path.stat is the same
    except OSError as error:
        return _REASONS.get(error.errno or 0, error.strerror or "nothing there")
    except ValueError:
        return NUL
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def is_file(path: Path | str) -> bool:
    """Whether there is a regular file; a name that cannot be looked up is none."""
    return kind_of(path) == "a file"


def closed_above(path: Path | str) -> Path | None:
    """What keeps a path from being made: the nearest thing that exists there or above it.

    None if that is a folder that this process may write to.
    """
    place = Path(path).absolute()
    while kind_of(place) == _REASONS[errno.ENOENT]:
        place = place.parent
    is_open = kind_of(place) == "a folder" and os.access(
        place, os.W_OK | os.X_OK, effective_ids=True
    )
    return None if is_open else place


def found_at(path: Path | str) -> str:
    """The path and what is there, for the middle of an error."""
    return f"{excerpt(str(path))} ({kind_of(path)})"
