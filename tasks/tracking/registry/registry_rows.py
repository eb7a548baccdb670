"""The registry's rows, read from the project's own SQLite file without MLflow.

MLflow's client takes two seconds of processor time to import, too much for a command that only asks
which version is champion. Anything unexpected is left to the client.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from tasks.tracking.database.relocation import follow_move
from tasks.tracking.store import sqlite_file, tracking_uri

_WAIT_S = 5.0
# MLflow's mark of a deleted version.
_DELETED = "Deleted_Internal"
_WORKSPACE = "default"
_OWN = re.compile(r"""^revision\b[^=]*= *["'](\w+)""", re.MULTILINE)
_BEFORE = re.compile(r"""^down_revision\b[^=]*= *["'](\w+)""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RegistryRows:
    """The most frequent queries to a registry.

    Attributes:
        database: MLflow's SQLite file, whose tables are known.
    """

    database: Path

    def are_known(self) -> bool:
        """Whether the tables are those of the installed MLflow.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        return _newest() in {
            row[0] for row in self._rows("SELECT version_num FROM alembic_version")
        }

    def aliases(self, name: str) -> dict[str, str]:
        """Version by alias; empty if there is no such model.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        asked = "SELECT alias, version FROM registered_model_aliases WHERE name = ?"
        found = self._rows(f"{asked} AND workspace = ?", (name, _WORKSPACE))
        return {str(alias): str(version) for alias, version in found}

    def has_files(self, name: str, version: str) -> bool:
        """Whether the version exists with its files; remote files are assumed to exist.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        asked = "SELECT coalesce(storage_location, source) FROM model_versions WHERE name = ?"
        found = self._rows(
            f"{asked} AND version = ? AND workspace = ? AND current_stage IS NOT ?",
            (name, version, _WORKSPACE, _DELETED),
        )
        return any(bool(urlsplit(place).scheme) or Path(place).is_dir() for (place,) in found)

    def _rows(self, asked: str, values: Sequence[str] = ()) -> list[tuple[str, ...]]:
        address = f"{self.database.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
            return connection.execute(asked, values).fetchall()


def registry_rows() -> RegistryRows | None:
    """The rows of the project's registry; None for a server, for no store, and for unknown tables.

    If the store was moved with its project, its artifact paths are updated.

    Raises:
        sqlite3.Error: The file cannot be read.
    """
    database = sqlite_file(tracking_uri())
    if database is None or not database.is_file() or not database.stat().st_size:
        return None
    rows = RegistryRows(database)
    try:
        if not rows.are_known():
            return None
        follow_move(database)
        rows.aliases("")
        rows.has_files("", "")
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            return None
        raise
    return rows


def _newest() -> str | None:
    """The last of MLflow's database migrations, by the names in their files."""
    found = find_spec("mlflow")
    if found is None or found.origin is None:
        return None
    changes = Path(found.origin).parent / "store" / "db_migrations" / "versions"
    texts = [path.read_text(encoding="utf-8") for path in changes.glob("*.py")]
    before = {name for text in texts for name in _BEFORE.findall(text)}
    newest = {name for text in texts for name in _OWN.findall(text)} - before
    return newest.pop() if len(newest) == 1 else None
