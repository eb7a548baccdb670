"""MLflow's database is held by another program for a minute: the run tries again and ends."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from project import run_in
from shared import finished_project

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]
HELD_S = 60.0


def hold(database, held):
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(HELD_S)
        other.execute("ROLLBACK")


def test_a_registry_that_is_locked_for_a_minute_costs_a_minute(tmp_path_factory):
    from mlflow import MlflowClient

    folder = finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("locked") / "a")
    receipt = folder / "reports/registration.json"
    receipt.unlink()
    held = threading.Event()
    holder = threading.Thread(target=hold, args=(folder / "mlflow.db", held))
    holder.start()
    held.wait()
    patience = ("--set", "flow.retries=3", "--set", "flow.retry_delay_s=10")
    run = ("-m", "flows.cli", "run", "--from", "registration", *patience)
    done = run_in(folder, *run)
    holder.join()

    assert "database is locked; another process writes there" in done.stderr
    assert "version 1 is candidate" in done.stdout
    assert receipt.is_file()
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    assert 1 == len(client.search_model_versions("name = 'attacker'"))
