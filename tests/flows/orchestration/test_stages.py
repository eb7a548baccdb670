"""A stage as a task: skipped, done, tried again, refused or stopped; never left behind."""

from pathlib import Path

import psutil
import pytest
from each_row import each_row

from flows.errors import StageError, StageTimeoutError
from flows.orchestration.stages import run_stage, with_retries
from tasks.params.schema import FlowConfiguration

pytestmark = pytest.mark.real

COUNT = """\
from pathlib import Path
with open("runs.log", "a") as log:
    log.write("run\\n")
Path("out.txt").write_text("done")
"""
FAIL = """\
import sys
from tasks.pipeline.failures import StageFailure, write_failure
with open("runs.log", "a") as log:
    log.write("run\\n")
failure = StageFailure("GateError", "dev must hold 20 prompts, got 3", retryable={retryable})
write_failure(failure, "toy")
sys.exit(3)
"""
CRASH_ONCE = """\
import os, signal
from pathlib import Path
if not Path("crashed").exists():
    Path("crashed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
Path("out.txt").write_text("done")
"""
HANG = """\
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "300"])
open("pids", "w").write(f"{os.getpid()} {child.pid}")
time.sleep(300)
"""


def _num_runs():
    log = Path("runs.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_stage_runs_once_and_is_then_skipped(toy, in_flow, capsys):
    toy(COUNT)
    first = in_flow(run_stage, "toy", FlowConfiguration())
    second = in_flow(run_stage, "toy", FlowConfiguration())

    assert ("Completed", 1, None) == (first.state, first.attempts, first.error)
    assert "Skipped" == second.state
    assert 1 == _num_runs()
    assert "toy          up to date\n" == capsys.readouterr().out


@pytest.mark.wide
def test_force_runs_what_is_up_to_date(toy, in_flow):
    toy(COUNT)
    in_flow(run_stage, "toy", FlowConfiguration())
    outcome = in_flow(run_stage, "toy", FlowConfiguration(), force=True)

    assert "Completed" == outcome.state
    assert 2 == _num_runs()


def test_a_deleted_output_is_restored_without_running(toy, in_flow, capfd):
    toy(COUNT)
    in_flow(run_stage, "toy", FlowConfiguration())
    Path("out.txt").unlink()
    outcome = in_flow(run_stage, "toy", FlowConfiguration())

    assert "Completed" == outcome.state
    assert "done" == Path("out.txt").read_text()
    assert 1 == _num_runs()


def test_a_crash_is_tried_again(toy, in_flow, capfd):
    toy(CRASH_ONCE)
    outcome = in_flow(run_stage, "toy", FlowConfiguration(retry_delay_s=0.1))

    assert ("Completed", 2) == (outcome.state, outcome.attempts)
    assert "toy          try 2 of 3" in capfd.readouterr().out


def test_a_gate_is_not_asked_twice_and_speaks_for_itself(toy, in_flow):
    toy(FAIL.format(retryable=False))
    outcome = in_flow(run_stage, "toy", FlowConfiguration(retry_delay_s=0.1))

    assert ("Failed", 1) == (outcome.state, outcome.attempts)
    assert 1 == _num_runs()
    with pytest.raises(StageError, match=r"^dev must hold 20 prompts, got 3$"):
        outcome.require_done()


@each_row("delay_s", [0.5, 4.0])
def test_a_retry_waits_as_flow_retry_delay_s_says(delay_s):
    limits = FlowConfiguration(retries=2, retry_delay_s=delay_s)

    assert [delay_s, 2 * delay_s] == with_retries("toy", limits)(_num_runs).retry_delay_seconds


def test_a_failure_that_can_pass_is_tried_as_often_as_allowed(toy, in_flow):
    toy(FAIL.format(retryable=True))
    outcome = in_flow(run_stage, "toy", FlowConfiguration(retries=1, retry_delay_s=0.1))

    assert ("Failed", 2) == (outcome.state, outcome.attempts)
    assert "dev must hold 20 prompts, got 3" == outcome.message


def test_the_time_limit_ends_the_whole_process_group(toy, in_flow, capsys):
    toy(HANG)
    outcome = in_flow(run_stage, "toy", FlowConfiguration(timeout_s=4.0))

    assert ("TimedOut", 1) == (outcome.state, outcome.attempts)
    assert isinstance(outcome.error, StageTimeoutError)
    assert "stage toy must end within 4 s" in capsys.readouterr().err
    # They would sleep for minutes.
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert [] == [pid for pid in pids if _runs(pid)]


def _runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
