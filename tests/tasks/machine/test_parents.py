import os
import subprocess
import sys
import time

import psutil
import pytest

from tasks.machine.parents import STARTED_BY

# Leads a group with a sleeping child of its own, and watches whoever started it.
LEADER = """
import subprocess, sys, time
from tasks.machine.parents import end_group_with_parent
child = subprocess.Popen(["sleep", "300"])
end_group_with_parent()
print(child.pid, flush=True)
time.sleep(300)
"""
STAGE = """
import os, time
from tasks.machine.parents import end_with_dvc
end_with_dvc()
print(os.getpid(), flush=True)
time.sleep(300)
"""
# Starts a command, hands its first line on, and waits to be killed.
STARTER = """
import subprocess, sys, time
child = subprocess.Popen({command}, start_new_session={leads}, stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(300)
"""


def _start(command, *, leads, variables=None):
    """The process that started the command, and the numbers of the command and of what it told."""
    code = STARTER.format(command=command, leads=leads)
    environment = {**os.environ, **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    return process, [int(word) for word in process.stdout.readline().split()]


def _kill_and_wait(process, pids, timeout_s=120.0):
    process.kill()
    process.wait()
    return _left_of(pids, timeout_s)


def _left_of(pids, timeout_s=120.0):
    end = time.monotonic() + timeout_s
    while _alive(pids) and time.monotonic() < end:
        time.sleep(0.05)
    left = _alive(pids)
    for pid in left:
        os.kill(pid, 9)
    return left


def _alive(pids):
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.real
def test_a_group_ends_with_the_parent_of_its_leader():
    starter, pids = _start([sys.executable, "-c", LEADER], leads=True)
    assert 2 == len(_alive(pids))

    assert [] == _kill_and_wait(starter, pids)


@pytest.mark.real
def test_a_group_ends_whose_starter_was_gone_before_it_asked():
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    starter, pids = _start(
        [sys.executable, "-c", LEADER],
        leads=True,
        variables={STARTED_BY: gone.stdout.decode().strip()},
    )

    assert [] == _left_of(pids)
    starter.kill()


@pytest.mark.real
@pytest.mark.parametrize("shell", [False, True])
def test_a_stage_ends_with_the_dvc_that_started_it(shell):
    command = [sys.executable, "-c", STAGE]
    if shell:
        command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, STAGE]
    starter, pids = _start(command, leads=False, variables={"DVC_STAGE": "training"})

    assert [] == _kill_and_wait(starter, pids)


@pytest.mark.real
def test_a_stage_that_a_person_started_is_left_alone():
    starter, pids = _start([sys.executable, "-c", STAGE], leads=False, variables={"DVC_STAGE": ""})
    left = _kill_and_wait(starter, pids, timeout_s=2.5)

    assert sorted(set(pids)) == sorted(set(left))
