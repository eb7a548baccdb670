import os
import subprocess
import uuid
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from each_row import each_row
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling, Pending, Running

from flows.orchestration.lost_runs import START_S, close_lost_runs, has_process

pytestmark = pytest.mark.real


def test_runs_without_a_process_are_crashed_and_others_are_left(prefect_server):
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
