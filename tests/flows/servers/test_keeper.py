import subprocess
import sys

import psutil
import pytest
from each_row import each_row

from flows.servers.keeper import keeper_command

pytestmark = pytest.mark.real

TELL_AND_SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"


def _keep(code):
    return subprocess.Popen(
        keeper_command([sys.executable, "-c", code]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_command_ends_with_whoever_keeps_it():
    keeper = _keep(TELL_AND_SLEEP)
    pid = int(keeper.stdout.readline())
    assert psutil.pid_exists(pid)
    keeper.stdin.close()

    assert 143 == keeper.wait(30)
    assert not psutil.pid_exists(pid)


@each_row("attempt", range(5))
def test_whoever_keeps_it_may_be_gone_before_it_starts(attempt, tmp_path):
    del attempt  # The end can fall anywhere in the start, so it is tried several times.
    code = f"import time; time.sleep(300)  # {tmp_path}"
    ended = subprocess.run(
        keeper_command([sys.executable, "-c", code]),
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=300,
    )
    left = [p for p in psutil.process_iter(["cmdline"]) if code in (p.info["cmdline"] or ())]

    assert 143 == ended.returncode
    assert [] == left


def test_a_keeper_that_is_asked_to_end_takes_its_command_along():
    keeper = _keep(TELL_AND_SLEEP)
    pid = int(keeper.stdout.readline())
    keeper.terminate()

    assert 143 == keeper.wait(30)
    assert not psutil.pid_exists(pid)


def test_a_keeper_ends_as_its_command_does():
    keeper = _keep("raise SystemExit(7)")

    assert 7 == keeper.wait(30)


def test_the_command_does_not_hold_the_pipe():
    keeper = _keep("import sys; print(repr(sys.stdin.read()), flush=True)")

    assert "''\n" == keeper.stdout.readline()
    assert 0 == keeper.wait(30)
