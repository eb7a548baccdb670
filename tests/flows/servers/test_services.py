import socket
import sys
import time

import psutil
import pytest

from flows.servers import services
from flows.servers.services import Service, ServiceError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _web_server():
    port = _free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    return services.start("web", command, {}, url=f"http://127.0.0.1:{port}")


@pytest.mark.real
def test_a_service_is_found_by_another_command_and_stopped():
    service = _web_server()
    try:
        services.wait_until_ready(service, "/", timeout_s=240)
        services.remember([service])

        assert [service] == services.running()
    finally:
        services.stop([service])

    assert [] == services.running()
    assert not service.is_alive()
    assert not services.answers(service.url)


@pytest.mark.real
def test_a_process_of_the_same_number_is_not_the_service():
    service = _web_server()
    later = Service(service.name, service.pid, service.started + 100.0)
    try:
        assert service.is_alive()
        assert not later.is_alive()
    finally:
        services.stop([service])


@pytest.mark.real
def test_a_service_that_ends_at_once_names_its_log():
    command = [sys.executable, "-c", "raise SystemExit('no')"]
    service = services.start("broken", command, {}, url="http://127.0.0.1:9")

    with pytest.raises(ServiceError, match=r"broken must start, but ended; .*broken\.log"):
        services.wait_until_ready(service, "/", timeout_s=240)
    assert "no\n" == (services.LOGS / "broken.log").read_text()


def test_a_service_that_never_answers_is_given_up():
    service = services.start("deaf", ["sleep", "60"], {}, url="http://127.0.0.1:9")
    try:
        with pytest.raises(ServiceError, match=r"deaf must answer within 0\.3 s"):
            services.wait_until_ready(service, "/", timeout_s=0.3)
    finally:
        services.stop([service])


def test_a_port_in_use_is_named_with_the_option_to_change_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = f"port {port} must be free, got one in use; name another with --prefect-port"
        with pytest.raises(ServiceError, match=message):
            services.prefect_server(port)


# Leads a group, starts a sleeper in it and says its number.
LEADER = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid); time.sleep(60)"


@pytest.mark.real
def test_what_a_killed_service_left_behind_is_stopped_with_it():
    service = services.start("leader", [sys.executable, "-u", "-c", LEADER], {})
    log = services.LOGS / "leader.log"
    while not log.read_text().endswith("\n"):
        time.sleep(0.05)
    sleeper = psutil.Process(int(log.read_text()))
    services.remember([service])
    leader = services.forget(service)
    leader.kill()
    leader.wait()
    assert sleeper.is_running()

    services.stop(services.remembered_services())
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE


def test_a_damaged_list_of_services_is_no_list():
    services.SERVICES.parent.mkdir()
    services.SERVICES.write_text("{", encoding="utf-8")

    assert [] == services.running()
