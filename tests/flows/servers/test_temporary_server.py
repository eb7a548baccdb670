import os
import subprocess

import psutil
import pytest

from flows.servers import services, temporary_server
from flows.servers.services import Service
from flows.servers.temporary_server import FOLDER, end_leftovers


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _sleeper():
    """A process that ends only if it is made to, and what the list says of it."""
    service = services.start("temporary-server", ["sleep", "60"], {})
    return service, services.forget(service)


def test_a_server_without_its_run_is_ended_by_the_next_one(monkeypatch):
    server, process = _sleeper()
    temporary_server._remember(server)
    (entry,) = FOLDER.iterdir()
    # The run is gone: its number belongs to a process that began at another time.
    text = entry.read_text()
    began = psutil.Process().create_time()
    entry.write_text(text.replace(str(began), str(began - 100.0)))

    assert 1 == end_leftovers()
    assert process.wait(10) is not None
    assert [] == list(FOLDER.iterdir())


def test_the_server_of_a_run_under_way_is_left_alone():
    server, process = _sleeper()
    temporary_server._remember(server)

    assert 0 == end_leftovers()
    assert process.poll() is None
    assert [f"{os.getpid()}.json"] == [path.name for path in FOLDER.iterdir()]
    process.kill()
    process.wait()


def test_a_damaged_entry_is_dropped():
    FOLDER.mkdir(parents=True)
    (FOLDER / "1.json").write_text("{", encoding="utf-8")

    assert 0 == end_leftovers()
    assert [] == list(FOLDER.iterdir())


def test_the_draft_of_an_entry_goes_with_its_run():
    FOLDER.mkdir(parents=True)
    gone = subprocess.Popen(["true"])
    gone.wait()
    for number in (gone.pid, os.getpid()):
        (FOLDER / f".{number}.json.partial").touch()
    end_leftovers()

    assert [f".{os.getpid()}.json.partial"] == [path.name for path in FOLDER.iterdir()]


def test_a_server_is_asked_by_its_pipe_and_then_ended():
    deaf = ["sh", "-c", "trap '' TERM; read line; exit 3"]
    server = services.start("temporary-server", deaf, {}, lasting=False)
    process = services._children[server.pid]
    temporary_server._remember(server)
    temporary_server.stop_temporary_server(server)

    assert 3 == process.returncode
    assert [] == list(FOLDER.iterdir())
    assert isinstance(server, Service)
