import sqlite3
from contextlib import closing

import pytest
from alembic import command
from registry_project import forget_machine

from tasks.tracking.store import connect

pytestmark = pytest.mark.real


class KilledError(Exception):
    pass


def tables(database):
    with closing(sqlite3.connect(database)) as opened:
        return {name for (name,) in opened.execute("SELECT name FROM sqlite_master")}


def test_what_is_stopped_while_it_makes_the_tables_leaves_none(tmp_path, monkeypatch, request):
    def killed(*_):
        raise KilledError

    # MLflow makes them itself here; elsewhere the tests copy what it made once.
    monkeypatch.setattr(request.getfixturevalue("_tables"), "kept", tmp_path / "none.db")
    forget_machine(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", killed)
        with pytest.raises(KilledError):
            connect()

    assert set() == tables("mlflow.db")
    connect().create_registered_model("attacker")
    assert "attacker" == connect().get_registered_model("attacker").name


def test_a_store_that_was_left_half_made_is_made_anew(tmp_path, monkeypatch):
    forget_machine(tmp_path, monkeypatch)
    with closing(sqlite3.connect("mlflow.db")) as opened:
        # The last table of all, which MLflow then finds where it must not be yet.
        opened.execute("CREATE TABLE evaluation_datasets (dataset_id VARCHAR(36))")

    assert "0" == connect().search_experiments()[0].experiment_id
