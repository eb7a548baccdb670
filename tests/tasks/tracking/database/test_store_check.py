import sqlite3
from contextlib import closing

import pytest
from registry_project import enter_project, receipt

from astra_core.errors import AstraError
from flows.registry import alias_versions, is_registered
from tasks.records.reports import write_record
from tasks.tracking.database.store_check import RECEIPT, check_store, has_store
from tasks.tracking.errors import DamagedStoreError, StoreError, TrackingError
from tasks.tracking.store import connect, store_errors, tracking_uri

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path, monkeypatch):
    return enter_project(tmp_path, monkeypatch)


def no_database(database):
    database.write_bytes(b"hello, I am no database" * 400)


def truncated(database):
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])


def a_folder(database):
    database.unlink()
    database.mkdir()


def of_another_mlflow(database):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffff'")
        connection.commit()


@pytest.mark.parametrize("damage", [no_database, truncated, a_folder, of_another_mlflow])
def test_a_damaged_store_is_one_line_wherever_it_is_asked(project, damage):
    damage(project / "mlflow.db")
    write_record(receipt(), project / RECEIPT)
    # A whole database of another MLflow is not damaged: MLflow's own words name its upgrade.
    kind = TrackingError if damage is of_another_mlflow else DamagedStoreError
    for ask in (lambda: alias_versions("attacker"), is_registered):
        with pytest.raises(kind, match="must ") as caught:
            ask()
        assert 1 == len(str(caught.value).splitlines())


def test_a_store_that_is_locked_can_pass(project):
    with closing(sqlite3.connect("mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="database is locked; another process writes there"):
            check_store()


@pytest.mark.parametrize("leave", ["nothing", "an empty file"])
def test_a_store_that_is_gone_though_a_receipt_names_it_is_away(project, leave):
    write_record(receipt(tracking_uri=tracking_uri()), project / RECEIPT)
    check_store()
    (project / "mlflow.db").unlink()
    if leave == "an empty file":
        (project / "mlflow.db").touch()
    with pytest.raises(DamagedStoreError, match="must hold the version that"):
        alias_versions("attacker")
    (project / RECEIPT).unlink()

    assert {} == alias_versions("attacker")
    assert not has_store()


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("sqlite:///{}/none/mlflow.db", DamagedStoreError, "must be a file in a folder"),
        ("http://127.0.0.1:9", StoreError, "http://127.0.0.1:9 must answer"),
        ("nonsense://x", DamagedStoreError, "got 'nonsense://x'"),
        (
            "postgresql://me:secret@127.0.0.1:9/x",
            DamagedStoreError,
            "postgresql://***@127.0.0.1:9/x",
        ),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(project, monkeypatch, address, kind, words):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(project))
    with pytest.raises(kind) as caught:
        check_store()

    assert words in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_looking_changes_no_byte_of_the_store(project):
    connect()
    before = (project / "mlflow.db").read_bytes()
    check_store()

    assert before == (project / "mlflow.db").read_bytes()


def test_a_full_disk_under_the_store_is_reported_as_one(project):
    full = sqlite3.OperationalError("database or disk is full")
    with pytest.raises(AstraError, match=r"must have room for .*mlflow\.db"), store_errors():
        raise full
