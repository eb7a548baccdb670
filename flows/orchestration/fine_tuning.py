"""A fine-tuning job as a flow run, so that Prefect's pages show it; the Trainer is the same.

``python -m flows.orchestration.fine_tuning FOLDER JOB`` runs it once.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from flows.orchestration.lost_runs import note_process
from tasks.machine.console import quiet_libraries
from tasks.machine.garbage import collect_rarely
from tasks.serving.fine_tuning.training import run_job


@flow(name="fine-tuning", flow_run_name="{job}", on_running=[note_process])
def fine_tuning(folder: str, job: str) -> State[None]:
    """Trains a job of the service in a folder, from its last checkpoint on."""
    status = run_job(Path(folder), job)
    made = {"cancelled": Cancelled, "failed": Failed}.get(status, Completed)
    state: State[None] = made(message=f"the job is {status}")
    return state


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the flow: 0 if the job has ended, however it ended."""
    collect_rarely()
    folder, job = sys.argv[1:] if arguments is None else arguments
    quiet_libraries()
    fine_tuning(folder, job, return_state=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
