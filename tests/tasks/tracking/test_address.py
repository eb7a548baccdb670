"""Addresses that name no store are in tests/bad_input/surroundings.py."""

import pytest
from each_row import each_row

from tasks.tracking.address import check_tracking_uri
from tasks.tracking.errors import TrackingError


@each_row(
    "uri",
    [
        "http://127.0.0.1:5000",
        "https://tracker.example.org/mlflow",
        "sqlite:///mlflow.db",
        "sqlite:////tmp/not/there/yet/mlflow.db",
        "sqlite:////tmp/a folder/mlflow.db?timeout=5",
        "databricks",
        "databricks://profile",
    ],
)
def test_an_address_of_a_store_passes(uri):
    check_tracking_uri(uri)


def test_a_folder_passes_where_mlflow_was_set_to_take_it(monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    check_tracking_uri("file:///somewhere")


def test_a_password_is_not_shown():
    with pytest.raises(TrackingError, match=r"'postgresql://\*\*\*@db/astra'") as refusal:
        check_tracking_uri("postgresql://me:secret@db/astra")

    assert "secret" not in str(refusal.value)
