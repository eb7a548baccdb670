"""A finished project under another path: it runs, shows its pages and goes back to a champion."""

import json
import socket
import urllib.request

import pytest
from project import run_in
from shared import finished_project

from flows.servers.access import FILE, auth_string, basic

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]


def astra(folder, *arguments):
    return run_in(folder, "-m", "flows.cli", *arguments).stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def test_a_moved_project_works_as_before(tmp_path_factory):
    from mlflow import MlflowClient

    finished = finished_project(tmp_path_factory)
    folder = tmp_path_factory.mktemp("moved")
    # The first copy is what a person moves on: no path of the original may be needed.
    moved = finished.copy_to(folder / "before").rename(folder / "ö elsewhere")
    ports = {name: free_port() for name in ("--prefect-port", "--mlflow-port")}
    astra(moved, "ui", "--detach", *(word for pair in ports.items() for word in pair))
    run_id = json.loads((moved / "reports/registration.json").read_text("utf-8"))["run_id"]
    try:
        page = f"http://127.0.0.1:{ports['--mlflow-port']}/get-artifact?path=report.html"
        asked = urllib.request.Request(f"{page}&run_uuid={run_id}")  # noqa: S310
        asked.add_header("Authorization", basic(auth_string(moved / FILE)))
        with urllib.request.urlopen(asked) as answer:  # noqa: S310
            report = answer.read()
    finally:
        astra(moved, "ui", "--stop")

    assert b"<html" in report
    assert 7 == astra(moved, "status").count("up to date")
    assert "version 1" in astra(moved, "run")
    client = MlflowClient(f"sqlite:///{moved}/mlflow.db")
    source = client.get_model_version("attacker", "1").source
    assert source.startswith(str(moved))
    client.create_model_version("attacker", source, run_id=run_id)
    client.set_registered_model_alias("attacker", "champion", "2")
    client.set_registered_model_alias("attacker", "previous", "1")
    astra(moved, "rollback")
    assert "1" == str(client.get_model_version_by_alias("attacker", "champion").version)
    assert "up to date" in run_in(moved, "-m", "dvc", "status").stdout
