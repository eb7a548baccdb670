import os
import subprocess

import pytest

from flows.lost_runs import close_lost_runs

pytestmark = pytest.mark.xdist_group("prefect")


def test_runs_without_a_process_are_crashed_and_others_are_left(prefect_server):
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Running

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
        num_closed = close_lost_runs()
        states = [client.read_flow_run(run.id).state_name for run in (*runs, by_hand)]
        client.delete_flow_run(runs[1].id)  # it names this process, which other tests share

    assert 2 == num_closed
    assert ["Crashed", "Running", "Crashed", "Running"] == states
