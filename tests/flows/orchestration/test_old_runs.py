import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from astra_core.errors import DataError
from flows.orchestration.old_runs import old_runs, remove_old_runs

pytestmark = pytest.mark.real


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Prefect's home, its database elsewhere in no variable."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for name in ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def database(home, *runs):
    """A table of flow runs, each a state, the days since its end, and the task that started it."""
    with closing(sqlite3.connect(home / "prefect.db")) as connection, connection:
        connection.execute("CREATE TABLE flow_run (state_type, end_time, parent_task_run_id)")
        for state, days, parent in runs:
            end = datetime.now(UTC) - timedelta(days=days)
            row = (state, end.strftime("%Y-%m-%d %H:%M:%S.%f"), parent)
            connection.execute("INSERT INTO flow_run VALUES (?, ?, ?)", row)


def test_only_what_ended_long_ago_counts(home):
    database(
        home,
        ("COMPLETED", 15, None),
        ("FAILED", 20, None),
        ("COMPLETED", 13, None),
        ("RUNNING", 90, None),
        ("COMPLETED", 15, "task"),
        ("CRASHED", 0, None),
    )

    assert (2, 5) == (old_runs(min_days=14.0).num_runs, old_runs(min_days=14.0).num_known)
    assert 3 == old_runs(min_days=0.0).num_runs
    assert "2 of 5 flow runs" in old_runs(min_days=14.0).line()


def test_a_database_of_a_server_is_left_alone(home, monkeypatch):
    database(home, ("COMPLETED", 15, None))
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://a@b/c")
    found = old_runs(min_days=14.0)

    assert 0 == found.num_runs == remove_old_runs(found, min_days=14.0)
    assert "DB_VACUUM_ENABLED" in found.line()


def test_what_is_no_database_is_one_line(home):
    (home / "prefect.db").write_bytes(b"no database" * 100)

    with pytest.raises(DataError, match="must be Prefect's database"):
        old_runs(min_days=14.0)


def test_without_a_database_there_is_nothing(home):
    assert 0 == old_runs(min_days=0.0).num_runs
    assert [] == list(home.iterdir())
