"""Which calls are under way and whose they are: another process waits for them and asks nothing.

An owner holds a lock on a file of its own for as long as it, or the relay that outlives it, is
there; the kernel frees the lock of one that was killed. Loads nothing but the standard library.
"""

import fcntl
import os
import secrets
import sqlite3
import weakref
from collections.abc import Mapping
from pathlib import Path

TABLE = "CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, owner TEXT NOT NULL, answer TEXT);"
"""A row per call under way; its answer where the owner was killed before it could use it."""
_ENDING = ".owner"


class Owner:
    """A process with calls under way.

    Args:
        database: The file of kept replies, beside which the lock is.

    Attributes:
        name: Of no other owner.
        lock: An open file; a process that inherited it keeps the owner alive.
    """

    def __init__(self, database: Path) -> None:
        _remove_dead(database)
        self.name = secrets.token_hex(8)
        path = _lock_of(database, self.name)
        self.lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.close = weakref.finalize(self, _close, self.lock, path)


def is_alive(database: Path, name: str) -> bool:
    """Whether an owner, or its relay, is still there."""
    try:
        lock = os.open(_lock_of(database, name), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def leave_answers(database: Path, owner: str, answers: Mapping[str, str]) -> None:
    """Writes what an owner that was killed has been answered, and takes back what it never asked.

    Args:
        database: The file of kept replies.
        owner: Its name.
        answers: By key, those that nobody has said to be kept.
    """
    connection = sqlite3.connect(database, timeout=60.0)
    with connection:
        rows = [(answer, key, owner) for key, answer in answers.items()]
        connection.executemany("UPDATE asked SET answer = ? WHERE key = ? AND owner = ?", rows)
        connection.execute("DELETE FROM asked WHERE owner = ? AND answer IS NULL", (owner,))
    connection.close()


def _lock_of(database: Path, name: str) -> Path:
    return database.with_name(f"{database.stem}.{name}{_ENDING}")


def _remove_dead(database: Path) -> None:
    for path in database.parent.glob(f"{database.stem}.*{_ENDING}"):
        if not is_alive(database, path.name.removesuffix(_ENDING).rpartition(".")[2]):
            path.unlink(missing_ok=True)


def _close(lock: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(lock)
