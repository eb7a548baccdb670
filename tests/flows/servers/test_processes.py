import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.servers.processes import (
    Farewell,
    child_environment,
    run_group,
    stage_command,
    start_process,
    stop_group,
)

# Starts a grandchild that deafly sleeps, says both numbers, and ends or sleeps itself.
FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, time; \
signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
if sys.argv[2] == "sleep":
    time.sleep(300)
sys.exit(int(sys.argv[2]))
"""


def _family(path, end):
    return [sys.executable, "-c", FAMILY, str(path), end]


def _living(path):
    pids = [int(pid) for pid in path.read_text().split()]
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.real
def test_run_group_gives_the_exit_status():
    status = run_group([sys.executable, "-c", "raise SystemExit(7)"], environment=_plain())

    assert 7 == status


@pytest.mark.real
def test_a_time_limit_ends_grandchildren_too(tmp_path):
    farewell = Farewell(grace_s=0.5, again_s=0.5)
    with pytest.raises(subprocess.TimeoutExpired):
        run_group(
            _family(tmp_path / "pids", "sleep"),
            environment=_plain(),
            timeout_s=3.0,
            farewell=farewell,
        )

    assert [] == _living(tmp_path / "pids")


@pytest.mark.real
def test_a_crash_leaves_no_grandchild(tmp_path):
    status = run_group(_family(tmp_path / "pids", "1"), environment=_plain())
    _wait_for(lambda: not _living(tmp_path / "pids"))

    assert 1 == status
    assert [] == _living(tmp_path / "pids")


def test_stop_group_returns_at_once_when_nobody_is_deaf():
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    # Whoever waited out the grace would be killed by it; and the test's own time limit is shorter.
    stop_group(process.pid, Farewell(grace_s=3600.0, again_s=3600.0), child=process)

    assert -signal.SIGTERM == process.returncode


def test_child_environment_lets_the_user_win_and_names_the_interpreter(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "kept")
    monkeypatch.delenv("DO_NOT_TRACK", raising=False)
    found = child_environment()

    assert ("kept", "true") == (found["TQDM_DISABLE"], found["DO_NOT_TRACK"])
    assert sys.executable == found["ASTRA_PYTHON"]
    assert "/bin/sh" == found["SHELL"]


def test_stage_command_uses_this_interpreter():
    assert [sys.executable, "-m", "tasks", "prompts"] == stage_command("tasks", "prompts")


def _plain():
    return {"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin"}


def _wait_for(happened, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)


@pytest.mark.real
def test_a_process_that_continues_has_its_group_and_its_log(tmp_path):
    code = "import os, sys; print(os.environ['MINE'], os.getpgrp() == os.getpid(), file=sys.stderr)"
    with (tmp_path / "log").open("wb") as log:
        process = start_process([sys.executable, "-c", code], log=log, environment={"MINE": "yes"})

    assert 0 == process.wait(30)
    assert "yes True" == (tmp_path / "log").read_text().strip()
