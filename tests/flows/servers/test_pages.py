import socket

import pytest

from flows.servers import services
from flows.servers.pages import serve_pages, stop_pages
from flows.servers.services import ServiceError


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


def test_when_one_port_is_taken_nothing_is_left_running():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServiceError, match="--prefect-port"):
            serve_pages(prefect_port=port, mlflow_port=port, worker=False, detach=True)

    assert [] == services.running()
