"""Starts a process for every open job, and another one if it ends before the job does.

The queue is in the database, so nothing is lost with the keeper: after a kill the next one finds
the same jobs. If a process of an earlier keeper still trains a job, the job is left to it.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from astra_core.errors import AstraError
from flows.servers.processes import STAGE, stage_command, start_process, stop_group
from tasks.serving.fine_tuning.store import OPEN, JobStore
from tasks.serving.fine_tuning.training import job_lock

WORKER = "tasks.serving.fine_tuning.worker"
FLOW = "flows.orchestration.fine_tuning"
_PAUSE_S = 0.2
# A cancelled job ends before its next step; if there is no next step, its process ends after this.
_FAREWELL_S = 60.0

Start = Callable[[Path, str], "subprocess.Popen[bytes]"]


def prefect_variables() -> dict[str, str] | None:
    """The variables for a client of the running Prefect server; None if there is none."""
    from flows.servers.addresses import api_url, client_environment

    try:
        return client_environment() if api_url() is not None else None
    except AstraError:
        return None


def start_worker(folder: Path, job_id: str) -> "subprocess.Popen[bytes]":
    """A process that trains the job, as a flow run if there is a Prefect server."""
    prefect = prefect_variables()
    module = WORKER if prefect is None else FLOW
    log = folder / "jobs" / job_id / "worker.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("ab") as output:
        return start_process(
            stage_command(module, str(folder), job_id), log=output, environment=prefect or {}
        )


class JobKeeper:
    """Trains the open jobs one after the other; it works in its own thread.

    ``limit_s``: seconds after its creation at which a job that is still open fails; its process is
    ended, whatever it does. None for no limit.
    """

    def __init__(
        self, folder: Path, *, start: Start = start_worker, limit_s: float | None = None
    ) -> None:
        self._folder = folder
        self._start = start
        self._limit_s = limit_s
        self._job = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and the process of the job; the next keeper resumes the job."""
        self._end.set()
        self._thread.join()
        if self._child is not None and self._child.poll() is None:
            stop_group(self._child.pid, STAGE, child=self._child)

    def _run(self) -> None:
        store = JobStore(self._folder)
        try:
            while not self._end.wait(_PAUSE_S):
                self._look(store)
        finally:
            store.close()

    def _lingers(self, store: JobStore) -> bool:
        """Whether the process still runs although its job ended a while ago, say by a cancel."""
        ended = store.job(self._job).finished_at
        return ended is not None and time.time() - ended > _FAREWELL_S

    def _look(self, store: JobStore) -> None:
        expired = [] if self._limit_s is None else store.expire(self._limit_s)
        if self._child is not None and self._child.poll() is None:
            if self._job not in expired and not self._lingers(store):
                return
            stop_group(self._child.pid, STAGE, child=self._child)
        self._child = None
        for job in store.jobs(*OPEN):
            with job_lock(store.job_folder(job.id)) as is_free:
                pass
            if is_free:
                self._job, self._child = job.id, self._start(self._folder, job.id)
            # The oldest first; a job that another process trains must end before the next begins.
            return
