import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from each_row import each_row
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling, Pending, Running

from flows.orchestration.lost_runs import START_S, close_lost_runs, has_process

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


def test_runs_without_a_process_are_crashed_and_others_are_left(prefect_server, monkeypatch):
    monkeypatch.setattr("flows.orchestration.lost_runs.PAGE", 1)
    from prefect import flow
    from prefect.client.orchestration import get_client

    @flow(name="lost")
    def lost():
        pass

    ended = subprocess.Popen(["true"])
    ended.wait()
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(lost), "lost")
        runs = [client.create_flow_run_from_deployment(deployment) for _ in range(3)]
        for run, pid in zip(runs, (str(ended.pid), str(os.getpid()), None), strict=True):
            client.set_flow_run_state(run.id, Running(), force=True)
            if pid is not None:
                client.update_flow_run(run.id, infrastructure_pid=pid)
        by_hand = client.create_flow_run(lost)
        client.set_flow_run_state(by_hand.id, Running(), force=True)
        num_closed = close_lost_runs(get_client(sync_client=True))
        states = [client.read_flow_run(run.id).state_name for run in (*runs, by_hand)]
        client.delete_flow_run(runs[1].id)  # it names this process, which other tests share

    assert 2 == num_closed
    assert ["Crashed", "Running", "Crashed", "Running"] == states


# Two runs of a flow, killed and at work, as commands in two folders have them.
AT_WORK = """
import time
from prefect import flow
from flows.orchestration.lost_runs import note_process

@flow(name="by hand", on_running=[note_process])
def by_hand():
    print("at work", flush=True)
    time.sleep(600)

by_hand()
"""


def test_a_killed_run_of_a_command_here_is_crashed_and_no_other(
    prefect_server, tmp_path, monkeypatch
):
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL

    monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value())
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    begun = [_at_work(folder) for folder in (here, here, elsewhere)]
    try:
        for process in (begun[0], begun[2]):
            process.kill()
            process.wait()
        monkeypatch.chdir(here)
        nums_closed = [
            close_lost_runs(get_client(sync_client=True), of_workers=False) for _ in range(2)
        ]
        with get_client(sync_client=True) as client:
            runs = client.read_flow_runs()
    finally:
        for process in begun:
            process.kill()
            process.wait()
    states = {run.infrastructure_pid: (run.state_name, run.state.message) for run in runs}

    assert [1, 0] == nums_closed
    crashed = ("Crashed", "Its process is gone.")
    expected = [crashed, ("Running", None), ("Running", None)]
    assert expected == [states[str(process.pid)] for process in begun]


def _at_work(folder):
    """A process whose flow runs."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", AT_WORK], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert "at work\n" == process.stdout.readline()
    return process


@each_row(
    ("kind", "age_s", "lives"),
    [
        # Seconds from the state of the run to the start of the process that has its number.
        (Running, -10.0, True),
        (Running, 0.0, True),
        (Running, 60.0, False),
        (Cancelling, -60.0, True),
        (Cancelling, 60.0, False),
        (Pending, START_S / 2, True),
        (Pending, START_S * 2, False),
    ],
)
def test_a_younger_process_of_the_same_number_is_not_the_runs_own(kind, age_s, lives):
    begun = datetime.fromtimestamp(psutil.Process().create_time(), UTC)
    state = kind(timestamp=begun - timedelta(seconds=age_s))
    run = FlowRun(flow_id=uuid.uuid4(), state=state, infrastructure_pid=str(os.getpid()))

    assert lives == has_process(run)


def test_a_zombie_and_a_run_without_a_number_have_no_process():
    zombie = subprocess.Popen(["true"])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    runs = [
        FlowRun(flow_id=uuid.uuid4(), state=Running(), infrastructure_pid=pid)
        for pid in (str(zombie.pid), None, "elsewhere")
    ]
    found = [has_process(run) for run in runs]
    zombie.wait()

    assert [False, False, False] == found
