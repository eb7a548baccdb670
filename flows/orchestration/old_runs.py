"""Flow runs that ended long ago, with their logs and artifacts, for ``astra gc``.

By default Prefect's server removes only old events. Its own retention of flow runs is used here,
once, on the database file in the project; a run that has not ended stays, however old.
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.errors.exception_text import excerpt

FILE = "prefect.db"
_ELSEWHERE = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
# Prefect keeps a run for at least an hour, whatever its settings.
_LEAST = timedelta(hours=1, seconds=1)
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class OldRuns:
    """What can be removed from Prefect's database.

    Attributes:
        place: The database file.
        num_runs: Runs that ended long ago; runs that they started are not counted.
        num_known: The number of all runs.
        num_bytes: The size of the whole file.
        kept_for: Why the database is left alone; empty where it is not.
    """

    place: Path
    num_runs: int = 0
    num_known: int = 0
    num_bytes: int = 0
    kept_for: str = ""

    def line(self) -> str:
        """For a person."""
        if self.kept_for:
            return f"{'Prefect':<24}is left alone: {self.kept_for}"
        size = f"{self.num_bytes / 2**20:9.1f} MiB in all"
        return f"{'Prefect':<24}{size}, {self.num_runs} of {self.num_known} flow runs"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "num_runs": self.num_runs,
            "num_known": self.num_known,
            "num_bytes_of_all": self.num_bytes,
            "kept_for": self.kept_for,
        }


def old_runs(*, min_days: float) -> OldRuns:
    """What can be removed; removes nothing.

    Args:
        min_days: Runs that ended less than this ago stay, and those of the last hour.

    Raises:
        DataError: The database cannot be read.
    """
    place = Path(os.environ.get("PREFECT_HOME", ".prefect")) / FILE
    if any(os.environ.get(name) for name in _ELSEWHERE):
        server = "its server can do it, with PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=true"
        return OldRuns(place, kept_for=server)
    if not place.is_file():
        return OldRuns(place)
    before = (datetime.now(UTC) - _age(min_days)).strftime("%Y-%m-%d %H:%M:%S.%f")
    marks = ", ".join("?" * len(_ENDED))
    top = "FROM flow_run WHERE parent_task_run_id IS NULL"
    ended = f"SELECT count(*) {top} AND state_type IN ({marks}) AND end_time < ?"
    try:
        address = f"{place.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
            (num_known,) = connection.execute(f"SELECT count(*) {top}").fetchone()
            (num_runs,) = connection.execute(ended, (*_ENDED, before)).fetchone()
    except sqlite3.Error as error:
        raise DataError(_unusable(place, error)) from error
    return OldRuns(place, int(num_runs), int(num_known), place.stat().st_size)


def remove_old_runs(found: OldRuns, *, min_days: float) -> int:
    """The number of bytes by which the file shrank, after Prefect's retention removed old runs.

    Args:
        found: The result of ``old_runs``.
        min_days: The same as for ``old_runs``.

    Raises:
        DataError: The database cannot be written.
    """
    if not found.num_runs:
        return 0
    import asyncio

    import sqlalchemy as sa

    try:
        asyncio.run(_remove(_age(min_days)))
        with closing(sqlite3.connect(found.place, timeout=_WAIT_S)) as connection:
            # Only this returns the space to the disk.
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
        raise DataError(_unusable(found.place, error)) from error
    return found.num_bytes - found.place.stat().st_size


async def _remove(age: timedelta) -> None:
    from prefect.server.database import provide_database_interface
    from prefect.server.services import db_vacuum
    from prefect.settings import (
        PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD as RETENTION,
    )
    from prefect.settings import temporary_settings

    database = provide_database_interface()
    with temporary_settings({RETENTION: age}):
        await db_vacuum.vacuum_old_flow_runs(db=database)
        await db_vacuum.vacuum_stale_artifact_collections(db=database)
    engine = await database.engine()
    await engine.dispose()


def _age(min_days: float) -> timedelta:
    return max(timedelta(days=min_days), _LEAST)


def _unusable(place: Path, error: Exception) -> str:
    return (
        f"{place} must be Prefect's database and free, got {excerpt(str(error))}; "
        "stop servers and runs ('astra ui --stop') and try again"
    )
