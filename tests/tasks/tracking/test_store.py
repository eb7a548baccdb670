"""Where runs are recorded; what is recorded is in ``test_tracking.py``."""

import os
import pickle
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from each_row import each_row
from memory_store import emptied, enter_memory_project
from registry_project import enter_project, forget_machine

from astra_core.errors import DataError, DiskFullError, OutOfMemoryError
from tasks.tracking.errors import DamagedStoreError, StoreError, TrackingError
from tasks.tracking.store import (
    connect,
    experiment_id,
    mlflow_server_command,
    one_line,
    project_root,
    quiet_pyfunc,
    store_errors,
    told_address,
    tracking_failures,
    tracking_uri,
)


@pytest.fixture(scope="module")
def store(memory_folder):
    """A client of an empty store, in whose folder the tests work."""
    with pytest.MonkeyPatch.context() as patch:
        enter_memory_project(emptied(memory_folder), patch)
        yield connect()


@pytest.fixture
def no_store(tmp_path, monkeypatch):
    """A project whose store nobody has opened."""
    forget_machine(tmp_path, monkeypatch)


@each_row(
    ("folder", "root"),
    [
        ("/srv/project", "/srv/project"),
        ("/srv/project/.dvc/tmp/exps/a1", "/srv/project"),
        ("/srv/project/.dvc/tmp/exps", "/srv/project"),
        ("/srv/project/.astra/workspaces/nightly-training", "/srv/project"),
        ("/srv/project/.dvc/tmp", "/srv/project/.dvc/tmp"),
        ("/", "/"),
    ],
)
def test_project_root_is_the_folder_unless_dvc_copied_it(folder, root):
    assert Path(root) == project_root(Path(folder))


def test_project_root_and_address_follow_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    copy = tmp_path / ".dvc/tmp/exps/a1"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)

    assert tmp_path == project_root()
    assert f"sqlite:///{tmp_path}/mlflow.db" == tracking_uri()
    assert "sqlite:////srv/other/mlflow.db" == tracking_uri(Path("/srv/other"))


@each_row(
    ("uri", "told"),
    [
        ("sqlite:////srv/project/mlflow.db", "sqlite:///mlflow.db"),
        ("sqlite:////srv/project/my/runs.db", "sqlite:///my/runs.db"),
        ("sqlite:////srv/team/mlflow.db", "sqlite:////srv/team/mlflow.db"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("postgresql://me:secret@db/astra", "postgresql://db/astra"),
        ("https://me:secret@host/x", "https://host/x"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_a_report_names_no_password_and_no_folder_above_the_project(uri, told):
    assert told == told_address(uri, Path("/srv/project"))


@pytest.mark.real
def test_connect_makes_the_folder_and_one_writer_after_another(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    database = tmp_path / "deep" / "mlflow.db"
    database.parent.mkdir()
    database.write_bytes(Path("mlflow.db").read_bytes())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")

    assert f"sqlite:///{database}" == connect().tracking_uri
    assert database.with_name("mlflow.db.lock").exists()
    with sqlite3.connect(database) as connection:
        assert ("wal",) == connection.execute("PRAGMA journal_mode").fetchone()


@pytest.mark.real
def test_connect_sets_what_keeps_mlflow_quiet_unless_a_person_did(store, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    connect()

    assert "5" == os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]
    assert "true" == os.environ["MLFLOW_DISABLE_TELEMETRY"]


def test_a_server_that_is_away_is_a_store_error(no_store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with (
        pytest.raises(StoreError, match=r"^http://127\.0\.0\.1:9 must answer, got") as away,
        store_errors(),
    ):
        connect()
    assert "\n" not in str(away.value)
    assert isinstance(away.value, ConnectionError)
    # Prefect pickles what a task raises.
    assert str(away.value) == str(pickle.loads(pickle.dumps(away.value)))  # noqa: S301 - our own


@each_row(
    ("error", "kind"),
    [
        (sqlite3.DatabaseError("malformed"), DamagedStoreError),
        (OSError(28, "No space left on device"), DiskFullError),
        (sqlite3.OperationalError("database is locked"), StoreError),
        (ImportError("x.so: failed to map segment from shared object"), OutOfMemoryError),
    ],
)
def test_what_a_damaged_full_or_locked_store_raises_is_distinguished(no_store, error, kind):
    with pytest.raises(kind, match=str(error.args[-1])) as raised, store_errors():
        raise error
    assert error is raised.value.__cause__
    assert isinstance(error, tracking_failures())


@pytest.mark.real
@each_row(
    ("content", "said"),
    [
        (None, "mlflow.db itself is whole: restore or name what is missing"),
        (b"no database " * 99, "restore that file from a copy, or move it away"),
        (b"", "may be read and written"),
    ],
)
def test_only_a_damaged_database_is_to_be_moved_away(tmp_path, monkeypatch, content, said):
    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    if content is None:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE runs (id)")
    elif content:
        database.write_bytes(content)
    missing = sqlite3.DataError("Run 'x' not found")

    with pytest.raises(TrackingError, match="Run 'x' not found") as raised, store_errors():
        raise missing
    assert said in str(raised.value)
    assert ("move it away" in said) == ("move it away" in str(raised.value))


def test_what_is_ours_or_a_bug_passes_as_it_is(no_store):
    for error in (DataError("ours"), ZeroDivisionError("a bug")):
        with pytest.raises(type(error)) as raised, store_errors():
            raise error
        assert error is raised.value


@pytest.mark.real
def test_an_experiment_is_made_once_with_its_files_beside_the_database(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    store = connect()
    found = experiment_id(store, "red team/é 1")
    experiment = store.get_experiment(found)

    assert found == experiment_id(store, "red team/é 1")
    assert str(Path.cwd() / "mlruns" / "red_team_é_1") == experiment.artifact_location


@pytest.mark.real
def test_a_deleted_experiment_is_not_used(store):
    deleted = experiment_id(store, "gone")
    store.delete_experiment(deleted)

    with pytest.raises(TrackingError, match=f"got a deleted one; run .* --experiment-id {deleted}"):
        experiment_id(store, "gone")


@pytest.mark.real
def test_an_experiment_that_another_process_makes_meanwhile_is_taken(store):
    from mlflow import MlflowClient

    class Late(MlflowClient):
        """Another process makes the experiment right after this one has looked for it."""

        made = None

        def get_experiment_by_name(self, name):
            found = super().get_experiment_by_name(name)
            if self.made is None:
                self.made = store.create_experiment(name)
            return found

    late = Late(store.tracking_uri)

    assert experiment_id(late, "both") == late.made


@pytest.mark.real
def test_an_experiment_that_the_store_refuses_is_one_line(store):
    with pytest.raises(TrackingError, match=r"^MlflowException: ") as refused:
        experiment_id(store, "")
    assert "\n" not in str(refused.value)


def test_the_server_shows_the_store_to_this_machine_alone(no_store, monkeypatch):
    arguments, environment = mlflow_server_command(5055)
    root = Path.cwd()

    assert [sys.executable, "-m", "mlflow", "server"] == arguments[:4]
    told = dict(zip(arguments[4::2], arguments[5::2], strict=True))
    assert f"sqlite:///{root}/mlflow.db" == told["--backend-store-uri"]
    assert str(root / "mlruns") == told["--artifacts-destination"]
    assert ("127.0.0.1", "5055", "1") == tuple(
        told[f"--{name}"] for name in ("host", "port", "workers")
    )
    assert "true" == environment["MLFLOW_DISABLE_TELEMETRY"]
    # A database elsewhere has no folder; files then lie in the project.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://team@db/mlflow")
    arguments, _ = mlflow_server_command()
    assert str(root / "mlruns") == arguments[arguments.index("--artifacts-destination") + 1]


@each_row("uri", ["http://127.0.0.1:5000", "https://mlflow.example.org"])
def test_a_server_is_not_served_by_another(monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)

    with pytest.raises(TrackingError, match="open that address instead"):
        mlflow_server_command()


def test_an_error_of_many_lines_fits_a_screen():
    assert "ValueError: a b c" == one_line(ValueError("a\n  b\n\nc"))
    assert 320 == len(one_line(ValueError("x" * 5000)))


def test_the_serving_library_is_imported_without_its_warnings():
    # Whoever imports it first; a warning is an error in these tests.
    assert callable(quiet_pyfunc().load_model)
