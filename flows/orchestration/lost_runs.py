"""Flow runs whose process is gone, for example after a power cut, but that still look running.

Each holds its deployment's only slot, so every later run of the schedule would be cancelled.
"""

import os

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Crashed

# The kernel's clock, which gives a process's start, may differ from the server's by this much.
CLOCK_S = 2.0
# A worker starts the process of a pending run within this time.
START_S = 120.0
UNDER_WAY = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def close_lost_runs(client: SyncPrefectClient | None = None) -> int:
    """The number of deployment runs that had lost their process and are now Crashed.

    Call it while no worker runs: a run that a worker is about to start has no process either.

    ``client``: the server's client, not yet entered; by default that of the server in the
    environment.
    """
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=UNDER_WAY))
    with client or _client() as server:
        found = server.read_flow_runs(flow_run_filter=FlowRunFilter(state=states))
        lost = [run for run in found if run.deployment_id is not None and not has_process(run)]
        for run in lost:
            _close(run, server)
    return len(lost)


def has_process(run: FlowRun) -> bool:
    """Whether the run's own process is alive, not a later one with the same process id."""
    import psutil

    pid = run.infrastructure_pid or ""
    if not pid.isdigit() or run.state is None:
        return False
    # A running process has reported so; only one that has not yet reported starts after its state.
    allowed_s = START_S if run.state.is_pending() else CLOCK_S
    try:
        process = psutil.Process(int(pid))
        begun = process.create_time()
        return bool(
            process.status() != psutil.STATUS_ZOMBIE
            and begun <= run.state.timestamp.timestamp() + allowed_s
        )
    except psutil.NoSuchProcess:
        return False


def _client() -> SyncPrefectClient:
    """Prefect itself would choose the server that was named when it was imported."""
    return SyncPrefectClient(
        os.environ["PREFECT_API_URL"],
        auth_string=os.environ.get("PREFECT_API_AUTH_STRING"),
        api_key=os.environ.get("PREFECT_API_KEY"),
    )


def _close(run: FlowRun, client: SyncPrefectClient) -> None:
    state: State[None] = Crashed(message="Its process is gone.")
    client.set_flow_run_state(run.id, state, force=True)
