"""The job service's state: files and jobs with events and checkpoints, in one SQLite database.

The server and the workers are separate processes that share the database. Every change is one
transaction, so each process can be killed at any moment.
"""

import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from astra_core.files import draft_of
from tasks.serving.fine_tuning.tables import (
    CHECKPOINTS,
    EVENTS,
    FILES,
    JOBS,
    TABLES,
    Job,
    checkpoint_record,
    event_record,
    file_record,
)

DATABASE = "jobs.sqlite"
OPEN = ("queued", "running")
ENDED = ("succeeded", "failed", "cancelled")
_WAIT_S = 30.0

Value = TypeVar("Value")


class JobStore:
    """Files, jobs, events and checkpoints below one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        url = sa.URL.create("sqlite", database=str(folder / DATABASE))
        self._engine = sa.create_engine(url, connect_args={"timeout": _WAIT_S})
        # At the end of a process too, where nothing is collected.
        weakref.finalize(self, self._engine.dispose)
        sa.event.listen(self._engine, "connect", _prepare)
        TABLES.create_all(self._engine)
        (folder / DATABASE).chmod(0o600)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def content_path(self, file_id: str) -> Path:
        """The path of a file's bytes."""
        return self.folder / "files" / f"{file_id}.jsonl"

    def job_folder(self, job_id: str) -> Path:
        """The folder of a job's lock, checkpoints and models."""
        return self.folder / "jobs" / job_id

    def add_file(self, file_id: str, content: bytes, *, filename: str, purpose: str) -> None:
        """Stores a file: its bytes first, so that every listed file is complete."""
        with draft_of(self.content_path(file_id)) as draft:
            draft.write_bytes(content)
        row = {"id": file_id, "filename": filename, "purpose": purpose, "bytes": len(content)}
        with self._engine.begin() as base:
            base.execute(sa.insert(FILES).values(**row, created_at=_now()))

    def files(self) -> list[dict[str, Any]]:
        """All files, newest first."""
        return self._all(sa.select(FILES).order_by(FILES.c.number.desc()), file_record)

    def file(self, file_id: str) -> dict[str, Any] | None:
        """A file in the interface's form."""
        with self._engine.connect() as base:
            row = base.execute(sa.select(FILES).where(FILES.c.id == file_id)).first()
        return None if row is None else file_record(row)

    def delete_file(self, file_id: str) -> None:
        """Removes a file and its bytes."""
        with self._engine.begin() as base:
            base.execute(sa.delete(FILES).where(FILES.c.id == file_id))
        self.content_path(file_id).unlink(missing_ok=True)

    def add_job(
        self,
        job_id: str,
        *,
        key: str | None,
        request: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> Job:
        """A new job in the queue; if a job has this key already, that job."""
        row = {"id": job_id, "key": key, "request": dict(request), "settings": dict(settings)}
        try:
            with self._engine.begin() as base:
                base.execute(sa.insert(JOBS).values(**row, created_at=_now(), status="queued"))
        except sa.exc.IntegrityError:
            known = self.job_of_key(key) if key is not None else None
            if known is None:
                raise
            return known
        self.note(job_id, f"Created fine-tuning job: {job_id}")
        return self.job(job_id)

    def job(self, job_id: str) -> Job:
        """The job with this id. Raises KeyError if there is none."""
        found = self._job(JOBS.c.id == job_id)
        if found is None:
            raise KeyError(job_id)
        return found

    def job_of_key(self, key: str) -> Job | None:
        """The job that was created under a key."""
        return self._job(JOBS.c.key == key)

    def jobs(self, *statuses: str) -> list[Job]:
        """Jobs, oldest first: all, or those in one of these states."""
        query = sa.select(JOBS).order_by(JOBS.c.number)
        if statuses:
            query = query.where(JOBS.c.status.in_(statuses))
        return self._all(query, lambda row: Job(*row))

    def _all(self, query: sa.Select[Any], read: Callable[[Any], Value]) -> list[Value]:
        """The rows of a query, each read by a function, in order."""
        with self._engine.connect() as base:
            return [read(row) for row in base.execute(query)]

    def _job(self, condition: sa.ColumnElement[bool]) -> Job | None:
        with self._engine.connect() as base:
            row = base.execute(sa.select(JOBS).where(condition)).first()
        return None if row is None else Job(*row)

    def move(self, job_id: str, status: str, **values: Any) -> bool:
        """Gives an open job another state; False if it has already ended, which stays so."""
        ended = {"finished_at": _now()} if status in ENDED else {}
        change = sa.update(JOBS).where(JOBS.c.id == job_id, JOBS.c.status.in_(OPEN))
        with self._engine.begin() as base:
            result = base.execute(change.values(status=status, **ended, **values))
        return bool(result.rowcount)

    def fail(self, job_id: str, message: str, *, code: str, param: str | None = None) -> bool:
        """Ends an open job with an error that says why; False if it has already ended."""
        error = {"code": code, "message": message, "param": param}
        has_failed = self.move(job_id, "failed", error=error)
        if has_failed:
            self.note(job_id, message, level="error")
        return has_failed

    def expire(self, limit_s: float, *, now: float | None = None) -> list[str]:
        """The ids of open jobs older than the limit, after they are failed.

        The interface has no state for them, so the error's code says it: ``job_expired`` for a job
        that no worker had begun, ``job_timed_out`` for the others.

        ``limit_s``: from a job's creation to its end. ``now``: as from ``time.time()``.
        """
        moment, found = time.time() if now is None else now, []
        for job in self.jobs(*OPEN):
            if moment - job.created_at > limit_s:
                code = "job_expired" if job.status == "queued" else "job_timed_out"
                words = (
                    f"a job must end within {limit_s:g} s of its creation, got still {job.status}; "
                    "create it again, or serve jobs with a longer --job-limit-s"
                )
                if self.fail(job.id, words, code=code):
                    found.append(job.id)
        return found

    def count_start(self, job_id: str) -> None:
        """Counts that a worker begins or resumes the job."""
        counted = {"starts": JOBS.c.starts + 1}
        with self._engine.begin() as base:
            base.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(**counted))

    def note(self, job_id: str, message: str, *, level: str = "info") -> None:
        """Adds an event with a message."""
        own = {"job": job_id, "level": level, "type": "message", "message": message, "data": {}}
        with self._engine.begin() as base:
            base.execute(sa.insert(EVENTS).values(**own, created_at=_now()))

    def note_step(self, job_id: str, message: str, *, step: int, data: Mapping[str, Any]) -> None:
        """Adds the figures of a step once; a new step is progress: starts count from 0 again."""
        own = {"job": job_id, "level": "info", "type": "metrics", "message": message}
        values = {**own, "data": dict(data), "step": step, "created_at": _now()}
        with self._engine.begin() as base:
            added = base.execute(sa.insert(EVENTS).prefix_with("OR IGNORE").values(**values))
            if added.rowcount:
                base.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(starts=0))

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """The events of a job, newest first, in the interface's form."""
        query = sa.select(EVENTS).where(EVENTS.c.job == job_id)
        return self._all(query.order_by(EVENTS.c.number.desc()), event_record)

    def add_checkpoint(self, job_id: str, step: int, *, model: str, loss: float) -> None:
        """Records a model that a job made before its end, once."""
        values = {"job": job_id, "step": step, "model": model, "loss": loss}
        with self._engine.begin() as base:
            query = sa.insert(CHECKPOINTS).prefix_with("OR IGNORE")
            base.execute(query.values(**values, created_at=_now()))

    def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        """The checkpoints of a job, newest first, in the interface's form."""
        query = sa.select(CHECKPOINTS).where(CHECKPOINTS.c.job == job_id)
        return self._all(query.order_by(CHECKPOINTS.c.step.desc()), checkpoint_record)

    def models(self) -> dict[str, Path]:
        """The folder of every model that jobs have made, by name."""
        made = {
            job.fine_tuned_model: self.job_folder(job.id) / "model"
            for job in self.jobs("succeeded")
            if job.fine_tuned_model is not None
        }
        with self._engine.connect() as base:
            for row in base.execute(sa.select(CHECKPOINTS)):
                made[row.model] = self.job_folder(row.job) / f"model-{row.step}"
        return {name: folder for name, folder in made.items() if folder.is_dir()}


def _prepare(connection: Any, _record: object) -> None:
    # Readers do not wait for a writer, and what was committed outlives a kill.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _now() -> int:
    return int(time.time())
