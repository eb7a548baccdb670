"""What a run leaves can be read by its owner alone, whatever the umask it is started with.

Attacks, replies and weights lie in these places as files of many programs, DVC's cache among them,
whose files anybody may read by their own mode. So each process keeps what it writes to its owner,
and the folders themselves are closed, before the first text lies in them.
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
    "runs",
    "tracking",
    "mlruns",
    "sweeps",
)
DATABASES = "mlflow.db*"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def keep_private(root: Path = Path()) -> None:
    """Closes the project's folders, and lets this process and its children write for one alone.

    Args:
        root: The project's folder; what it does not have yet is made closed.
    """
    os.umask(_OTHERS)
    for path in open_to_others(root):
        # What belongs to somebody else, or lies on a disk without modes, is the doctor's to tell.
        with suppress(OSError):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)


def open_to_others(root: Path = Path()) -> Iterator[Path]:
    """The places below ``root`` that hold attacks or weights and that others may look into."""
    found = [root / name for name in FOLDERS]
    for path in (*found, *sorted(root.glob(DATABASES))):
        with suppress(OSError):
            if path.stat().st_mode & _OTHERS:
                yield path
