"""Replies on disk: written before they are used, so that no answer is paid for twice.

They are in one SQLite file in write-ahead mode; each reply is one transaction, which a kill cannot
undo. A call is counted in its budget before it is made. An account records who used which reply, so
that a run's figures are the same however often it was killed.
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.files import is_disk_full, room_for
from astra_parts.targets.budget import Purse, Spent

_TABLES = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, text TEXT NOT NULL, thinking TEXT NOT NULL, finish TEXT NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, seconds REAL NOT NULL,
    model TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (
    account TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (account, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    budget TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (target TEXT PRIMARY KEY, model TEXT NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = "text, thinking, finish, tokens_in, tokens_out, seconds, model"
_AT_ONCE = 500  # SQLite takes at least 999 values in one statement
_INSERT_MODEL = "INSERT OR IGNORE INTO models VALUES (?, ?)"
MOST_TOKENS = 1 << 40
"""A larger count is not credible, and SQLite could not add it up."""
_WAIT_S = 60.0  # for another process that writes


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept reply.

    Attributes:
        text: What a user would see.
        thinking: Reasoning that a user would not see.
        finish: ``stop``, ``length`` or ``filter``.
        tokens_in: Tokens read.
        tokens_out: Tokens written.
        seconds: Seconds from question to reply.
        model: The model that the answer names.
    """

    text: str
    thinking: str = ""
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    model: str = ""

    def storable(self) -> "Kept":
        """The same reply with lone surrogates, which no file can hold, as question marks."""
        return replace(self, text=_whole_text(self.text), thinking=_whole_text(self.thinking))


class KeptReplies:
    """The file of replies; it can be used by many threads and processes at once.

    ``path``: the file, created when first needed, readable only by its owner.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None

    def found(self, keys: Sequence[str]) -> dict[str, Kept]:
        """The kept replies by key."""
        with self._access() as database:
            found: dict[str, Kept] = {}
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, {_COLUMNS} FROM replies WHERE key IN ({marks})"  # noqa: S608
                found |= {row[0]: Kept(*row[1:]) for row in database.execute(query, some)}
            return found

    def keep(self, key: str, reply: Kept, *, account: str, budget: str) -> None:
        """Writes a reply, its cost and its user, all or nothing."""
        values = (key, *astuple(reply))
        with self._access() as database, _whole(database):
            marks = ",".join("?" * len(values))
            insert = f"INSERT OR REPLACE INTO replies (key, {_COLUMNS}) VALUES ({marks})"  # noqa: S608
            database.execute(insert, values)
            database.execute("INSERT OR IGNORE INTO uses VALUES (?, ?)", (account, key))
            database.execute(
                "UPDATE spent SET tokens_in = tokens_in + ?, tokens_out = tokens_out + ? "
                "WHERE budget = ?",
                (reply.tokens_in, reply.tokens_out, budget),
            )

    def use(self, keys: Sequence[str], *, account: str) -> None:
        """Records who used replies that were kept before."""
        with self._access() as database, _whole(database):
            rows = [(account, key) for key in keys]
            database.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", rows)

    def replies_of(self, account: str) -> list[Kept]:
        """The replies that an account has used, in the order of their keys."""
        query = (
            f"SELECT {_COLUMNS} FROM uses JOIN replies USING (key) "  # noqa: S608
            "WHERE account = ? ORDER BY key"
        )
        with self._access() as database:
            return [Kept(*row) for row in database.execute(query, (account,))]

    def count(self, purse: Purse) -> str:
        """The limit of the budget that leaves no room for a call; if there is none, counts one."""
        with self._access() as database, _whole(database):
            refused = purse.reached_limit(self.spending(purse.name))
            if not refused:
                database.execute(
                    "INSERT INTO spent VALUES (?, 1, 0, 0) "
                    "ON CONFLICT (budget) DO UPDATE SET calls = calls + 1",
                    (purse.name,),
                )
            return refused

    def spending(self, budget: str) -> Spent:
        """The amounts spent under a name so far, by all processes."""
        query = "SELECT calls, tokens_in, tokens_out FROM spent WHERE budget = ?"
        with self._access() as database:
            row = database.execute(query, (budget,)).fetchone()
            return Spent(*row) if row else Spent()

    def model_before(self, target: str, model: str, *, is_new: bool = False) -> str:
        """The model that a target named when it was first asked; this one if it never was.

        Args:
            target: Its digest.
            model: The model that an answer names now.
            is_new: True to record this one from now on.
        """
        insert = _INSERT_MODEL.replace("IGNORE", "REPLACE") if is_new else _INSERT_MODEL
        with self._access() as database, _whole(database):
            database.execute(insert, (target, model))
            row = database.execute("SELECT model FROM models WHERE target = ?", (target,))
            return str(row.fetchone()[0])

    def close(self) -> None:
        """Closes the file; it is opened again when it is needed."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    @contextmanager
    def _access(self) -> Iterator[sqlite3.Connection]:
        """The database, for one thread at a time.

        Raises ConfigurationError if the file is not a database, or cannot be written;
        DiskFullError if the disk is full.
        """
        with self._lock, room_for(self.path):
            try:
                if self._database is None:
                    self._database = _open(self.path)
                    # At the end of a process too, where nothing is collected.
                    weakref.finalize(self, self._database.close)
                yield self._database
            except (sqlite3.Error, OSError) as error:
                if is_disk_full(error):
                    raise
                msg = (
                    f"{self.path} must be a file of kept replies that can be written, got: {error};"
                    " move it away, or name another folder in the target's option 'replies'"
                )
                raise ConfigurationError(msg) from error


def _whole_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _create(path)
    database = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.executescript(_TABLES)
    return database


def _create(path: Path) -> None:
    """Creates an empty file for its owner alone; SQLite gives its other files the same mode.

    One that is there is not opened: closing it would end the locks of every other connection of
    this process, and another process would remove the journal that those still write.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


@contextmanager
def _whole(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction, which an error rolls back."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # After some errors, SQLite has rolled back by itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
