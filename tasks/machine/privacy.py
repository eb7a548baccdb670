"""Only its owner can read what a run leaves, whatever the umask that it is started with.

Many programs write attacks, replies and weights into these folders, and some, such as DVC in its
cache, give their files a mode that lets anybody read them. So each process sets a umask for its
owner alone, and the folders themselves are closed before the first text is written.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FOLDERS = (
    ".dvc",
    ".astra",
    ".prefect",
    "data",
    "models",
    "reports",
    "findings",
    "runs",
    "tracking",
    "mlruns",
    "sweeps",
)
DATABASES = "mlflow.db*"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def keep_private(root: Path = Path()) -> None:
    """Closes the project's folders, and makes what this process and its children write private.

    ``root``: the project's folder; folders that it does not have yet are created closed.
    """
    os.umask(_OTHERS)
    for path in open_to_others(root):
        # The doctor reports what belongs to somebody else or is on a disk without modes.
        with suppress(OSError):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)


def open_to_others(root: Path = Path()) -> Iterator[Path]:
    """The folders below ``root`` that hold attacks or weights and that others may look into."""
    found = [root / name for name in FOLDERS]
    for path in (*found, *sorted(root.glob(DATABASES))):
        with suppress(OSError):
            if path.stat().st_mode & _OTHERS:
                yield path
