import socket
from dataclasses import asdict

import pytest
from registry_project import enter_project, receipt

from flows.servers import services
from flows.servers.pages import _place, serve_pages, stop_pages
from flows.servers.services import ServiceError
from tasks.records.receipt import RECEIPT
from tasks.records.reports import write_record
from tasks.tracking.database.relocation import moved_from
from tasks.tracking.store import connect, experiment_id


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def test_stopping_nothing_says_so(capsys):
    stop_pages()

    assert "nothing was running\n" == capsys.readouterr().out


def test_pages_are_started_once():
    service = services.start("sleep", ["sleep", "60"], {})
    services.remember([service])
    try:
        with pytest.raises(ServiceError, match="'astra ui --stop' ends them"):
            serve_pages(prefect_port=0, mlflow_port=0, worker=False, detach=True)
        assert service.is_alive()
    finally:
        stop_pages()
    assert not service.is_alive()


def test_mlflows_address_is_the_classic_page_of_the_runs(tmp_path):
    service = services.Service(services.MLFLOW, 1, 0.0, "http://127.0.0.1:5000")
    assert service.url == _place(service)

    write_record(asdict(receipt(experiment_id="7")), RECEIPT)
    assert "/#/experiments/7/runs?workflowType=machine_learning" in _place(service)


def test_when_one_port_is_taken_nothing_is_left_running():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServiceError, match="--prefect-port"):
            serve_pages(prefect_port=port, mlflow_port=port, worker=False, detach=True)

    assert [] == services.running()


@pytest.mark.real
def test_the_pages_of_a_moved_project_look_where_it_is_now(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    old = enter_project(tmp_path / "old", monkeypatch)
    client = connect()
    run = client.create_run(experiment_id(client, "mine"))
    client.log_text(run.info.run_id, "x", "notes.txt")
    moved = old.rename(tmp_path / "new")
    monkeypatch.chdir(moved)
    assert moved_from(moved / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServiceError):
            serve_pages(prefect_port=port, mlflow_port=port, worker=False, detach=True)

    assert () == moved_from(moved / "mlflow.db")
