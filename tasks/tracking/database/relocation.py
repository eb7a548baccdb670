"""Artifacts of a project that was moved or copied: MLflow records absolute paths."""

import sqlite3
from contextlib import closing
from pathlib import Path

ARTIFACTS = "mlruns"
"""The folder beside a SQLite store that holds its artifacts."""
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
_WAIT_S = 5.0


def moved_from(database: Path) -> tuple[str, ...]:
    """The old parent folders in which the store looks for artifacts that are beside it now.

    A folder that still exists counts only if there are artifacts beside the store: then it is the
    original of a copy, which must not be written to.

    ``database``: a SQLite file; one that is not MLflow's has none.
    """
    if not database.is_file() or not database.stat().st_size:
        return ()
    own = database.absolute().parent
    with closing(sqlite3.connect(database, timeout=_WAIT_S)) as connection:
        try:
            rows = connection.execute("SELECT artifact_location FROM experiments").fetchall()
        except sqlite3.DatabaseError:
            return ()
    roots = {str(place).rpartition(f"/{ARTIFACTS}/")[0] for (place,) in rows}
    has_own = (own / ARTIFACTS).is_dir()
    return tuple(
        root
        for root in sorted(roots)
        if Path(root).is_absolute()
        and Path(root) != own
        and (has_own or not (Path(root) / ARTIFACTS).is_dir())
    )


def follow_move(database: Path) -> tuple[str, ...]:
    """The same folders, after the store's own folder replaced them, in one transaction."""
    roots = moved_from(database)
    if not roots:
        return ()
    own = f"{database.absolute().parent}/{ARTIFACTS}/"
    with closing(sqlite3.connect(database, timeout=_WAIT_S)) as connection, connection:
        known = {(table, column) for table, column in _PLACES if _has(connection, table, column)}
        for root in roots:
            old = f"{root}/{ARTIFACTS}/"
            for table, column in sorted(known):
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - ours
                    f"WHERE substr({column}, 1, ?) = ?",
                    (own, len(old) + 1, len(old), old),
                )
    return roots


def _has(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether this MLflow's tables have the column."""
    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    return (column,) in columns
