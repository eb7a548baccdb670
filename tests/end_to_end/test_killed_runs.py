"""Runs and servers that are killed: nothing stays behind, a line says why, the next run works."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress

import psutil
import pytest
from project import environment, run_in
from shared import finished_project

from flows.servers.processes import KEEPER

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

BANNER_LINES = 2
KEPT = "what is done is kept and the same command resumes from here"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project in which all has run: what is not struck at is done already."""
    return finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("killed") / "project")


@pytest.fixture
def begin(project):
    """Starts ``astra`` with these arguments, as a shell does: in a process group of its own."""
    started = []

    def start(*arguments):
        log = (project / "screen.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=project,
            env=environment(project),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    for process in _at_work(project):
        process.kill()


def _at_work(folder, *words):
    """The processes that work in the folder and have all the words in their command."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.cwd() != str(folder):
                continue
            if set(words) <= set(process.cmdline()):
                found.append(process)
    return found


def _wait_for(happened, timeout_s=240.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = happened()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail("it did not happen in time")


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _server(folder):
    return _wait_for(lambda: _at_work(folder, "flows.servers.prefect_server"))[0]


def _stage(folder, name):
    """The process of the stage, which DVC has started."""
    return _wait_for(lambda: _at_work(folder, "tasks", name))[0]


def _screen(folder):
    return (folder / "screen.log").read_text().splitlines()[BANNER_LINES:]


def _assert_nothing_stays(folder):
    # A stage hears of it within a second, is asked to end and has five more; a worker has what its
    # keeper gives it, for its server may be gone first.
    _wait_for(lambda: not _at_work(folder), timeout_s=240.0 + KEEPER.grace_s)


@pytest.mark.wide
@pytest.mark.parametrize("moment", ["server", "validation"])
def test_a_killed_flow_leaves_no_process(project, begin, moment):
    flow = begin("run", "--force")
    _server(project) if moment == "server" else _stage(project, moment)
    flow.kill()
    flow.wait()

    _assert_nothing_stays(project)


@pytest.mark.wide
def test_a_flow_killed_with_the_process_of_dvc_leaves_no_stage(project, begin):
    flow = begin("run", "--force")
    _stage(project, "validation")
    between = _at_work(project, "tasks.pipeline.reproduction")
    for process in [flow, *between]:
        process.kill()
    flow.wait()

    assert between
    _assert_nothing_stays(project)


@pytest.mark.wide
def test_a_killed_reevaluation_leaves_no_process(project, begin):
    flow = begin("reevaluate")
    _wait_for(lambda: _at_work(project, "tasks.promotion.reevaluation"))
    flow.kill()
    flow.wait()

    _assert_nothing_stays(project)


def test_killed_pages_leave_no_server_and_no_worker(project, begin):
    ports = [str(_free_port()), str(_free_port())]
    pages = begin("ui", "--worker", "--prefect-port", ports[0], "--mlflow-port", ports[1])
    _wait_for(lambda: _at_work(project, "prefect", "worker", "start"))
    pages.kill()
    pages.wait()

    _assert_nothing_stays(project)


@pytest.mark.wide
def test_a_server_that_is_killed_ends_the_run_with_a_line(project, begin):
    flow = begin("run", "--force")
    _stage(project, "validation")
    _server(project).kill()
    killed = time.monotonic()
    status = flow.wait(120)
    seconds = time.monotonic() - killed

    errors = [line for line in _screen(project) if not line.startswith("prompts  ")]
    told = [line for line in errors if "the Prefect server of this run must keep running" in line]
    assert 1 == status
    assert 1 == len(told)
    assert KEPT in told[0]
    # The stage and the process of DVC were asked to end, and each may say so in a line of its own.
    assert len(errors) <= 3
    assert seconds < 60
    _assert_nothing_stays(project)


def test_a_group_that_is_stopped_ends_with_a_line(project, begin):
    flow = begin("run", "--force")
    _stage(project, "validation")
    os.killpg(flow.pid, signal.SIGTERM)
    status = flow.wait(120)

    errors = [line for line in _screen(project) if not line.startswith("prompts  ")]
    assert 128 + signal.SIGTERM == status
    assert "stopped; the same command resumes from here" == errors[-1]
    assert len(errors) <= 2
    _assert_nothing_stays(project)


def _states(folder):
    """How the project's flow runs look on Prefect's pages."""
    with closing(sqlite3.connect(folder / ".prefect/prefect.db")) as database:
        return {state for (state,) in database.execute("select state_type from flow_run")}


@pytest.mark.wide
def test_after_all_of_this_a_run_works(project):
    result = run_in(project, "-m", "flows.cli", "run")

    assert "promotion" in result.stdout
    assert "" == result.stderr
    assert {"CRASHED", "COMPLETED"} <= _states(project)
    assert "RUNNING" not in _states(project)
    _assert_nothing_stays(project)
    assert [] == list((project / ".astra/temporary_servers").iterdir())
