"""Flow runs whose process is gone, for example after a power cut, but that still look running.

One of a worker holds its deployment's only slot, so every later run of the schedule would be
cancelled; one of a command would stay on Prefect's pages as running for ever.
"""

import os
import socket
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Crashed

from flows.servers.processes import start_time
from tasks.tracking.store import project_root

# The kernel's clock, which gives a process's start, may differ from the server's by this much.
CLOCK_S = 2.0
# A worker starts the process of a pending run within this time.
START_S = 120.0
# Most runs that a server tells at once.
PAGE = 200
UNDER_WAY = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def note_process(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 - Prefect's
    """Notes whose process a flow run is; a hook of Prefect's for a flow that begins to run.

    A worker notes that of a deployment's run itself.
    """
    if flow_run.deployment_id is None:
        with get_client(sync_client=True) as server:
            server.update_flow_run(flow_run.id, infrastructure_pid=str(os.getpid()))
            server.update_flow_run_labels(flow_run.id, _here())


def close_lost_runs(client: SyncPrefectClient | None = None, *, of_workers: bool = True) -> int:
    """The number of runs that had lost their process and are now Crashed.

    Of runs without a worker, those that commands of this project began on this machine.

    Args:
        client: The server's, not yet entered; by default that of the server in the environment.
        of_workers: Whether runs of deployments are closed too. Only while no worker runs: one that
            a worker is about to start has no process either.
    """
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=UNDER_WAY))
    with client or _client() as server:
        chosen, found = FlowRunFilter(state=states), list[FlowRun]()
        while page := server.read_flow_runs(
            flow_run_filter=chosen, sort=FlowRunSort.ID_DESC, limit=PAGE, offset=len(found)
        ):
            found += page
        here = _here().items()

        def is_ours(run: FlowRun) -> bool:
            return of_workers if run.deployment_id else run.labels.items() >= here

        lost = [run for run in found if is_ours(run) and not has_process(run)]
        for run in lost:
            state: State[None] = Crashed(message="Its process is gone.")
            server.set_flow_run_state(run.id, state, force=True)
    return len(lost)


def _here() -> dict[str, Any]:
    """Where a process number means the same: a container may share name and folder, not numbers."""
    numbers = Path("/proc/self/ns/pid")
    machine = f"{socket.gethostname()} {numbers.readlink() if numbers.is_symlink() else ''}"
    return {"astra.machine": machine.strip(), "astra.project": str(project_root())}


def has_process(run: FlowRun) -> bool:
    """Whether the run's own process is alive, not a later one with the same process id."""
    pid = run.infrastructure_pid or ""
    if not pid.isdigit() or run.state is None:
        return False
    # A running process has reported so; only one that has not yet reported starts after its state.
    allowed_s = START_S if run.state.is_pending() else CLOCK_S
    begun = start_time(int(pid))
    return begun is not None and begun <= run.state.timestamp.timestamp() + allowed_s


def _client() -> SyncPrefectClient:
    """Prefect itself would choose the server that was named when it was imported."""
    return SyncPrefectClient(
        os.environ["PREFECT_API_URL"],
        auth_string=os.environ.get("PREFECT_API_AUTH_STRING"),
        api_key=os.environ.get("PREFECT_API_KEY"),
    )
