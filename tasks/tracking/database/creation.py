"""The tables of a new store: all of them or none.

MLflow makes them in dozens of migrations that are not in one transaction. If it is killed between
two of them, it can never finish: the next one finds tables that must not be there yet.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from tasks.machine.scratch import scratch_folder

# MLflow makes an experiment last, so a store without any was never finished or is empty.
_FILLED = ("experiments", "registered_models")


def make_tables(database: Path) -> None:
    """Fills a SQLite file in one transaction, unless it holds a finished store."""
    with closing(sqlite3.connect(database)) as target:
        if _is_finished(target):
            return
        from mlflow import MlflowClient

        with scratch_folder() as folder:
            draft = folder / database.name
            MlflowClient(f"sqlite:///{draft}").search_experiments(max_results=1)
            with closing(sqlite3.connect(draft)) as source:
                source.backup(target)


def _is_finished(database: sqlite3.Connection) -> bool:
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    return any(
        database.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()  # noqa: S608 - our own names
        for name in names.intersection(_FILLED)
    )
