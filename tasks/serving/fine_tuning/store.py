"""What the job service knows: files and jobs with events and checkpoints, in one SQLite database.

Server and workers are processes of their own that share the database. Every change is one
transaction, so each can be killed at any moment.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from astra_core.files import draft_of

DATABASE = "jobs.sqlite"
OPEN = ("queued", "running")
ENDED = ("succeeded", "failed", "cancelled")
_WAIT_S = 30.0
_tables = sa.MetaData()

_files = sa.Table(
    "files",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("filename", sa.String, nullable=False),
    sa.Column("purpose", sa.String, nullable=False),
    sa.Column("bytes", sa.Integer, nullable=False),
)
_jobs = sa.Table(
    "jobs",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("key", sa.String, unique=True),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("finished_at", sa.Integer),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("fine_tuned_model", sa.String),
    sa.Column("trained_tokens", sa.Integer),
    sa.Column("error", sa.JSON),
    sa.Column("starts", sa.Integer, nullable=False, server_default="0"),
)
_events = sa.Table(
    "events",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("level", sa.String, nullable=False),
    sa.Column("type", sa.String, nullable=False),
    sa.Column("message", sa.String, nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Column("step", sa.Integer),
    sa.UniqueConstraint("job", "type", "step"),
)
_checkpoints = sa.Table(
    "checkpoints",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("job", sa.String, nullable=False),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("model", sa.String, nullable=False),
    sa.Column("loss", sa.Float, nullable=False),
    sa.UniqueConstraint("job", "step"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is in the database.

    Attributes:
        request: The body of its creation.
        settings: How it is trained, settled when it was created.
        starts: Times a worker has begun or gone on with it since its last step.
    """

    number: int
    id: str
    key: str | None
    created_at: int
    finished_at: int | None
    status: str
    request: Mapping[str, Any]
    settings: Mapping[str, Any]
    fine_tuned_model: str | None
    trained_tokens: int | None
    error: Mapping[str, Any] | None
    starts: int


class JobStore:
    """Files, jobs, events and checkpoints below one folder.

    Args:
        folder: Made where it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        url = sa.URL.create("sqlite", database=str(folder / DATABASE))
        self._engine = sa.create_engine(url, connect_args={"timeout": _WAIT_S})
        sa.event.listen(self._engine, "connect", _prepare)
        _tables.create_all(self._engine)
        (folder / DATABASE).chmod(0o600)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def content_path(self, file_id: str) -> Path:
        """Where the bytes of a file are."""
        return self.folder / "files" / f"{file_id}.jsonl"

    def job_folder(self, job_id: str) -> Path:
        """Where a job keeps its lock, its checkpoints and its models."""
        return self.folder / "jobs" / job_id

    def add_file(self, file_id: str, content: bytes, *, filename: str, purpose: str) -> None:
        """Keeps a file: its bytes first, so that one that is listed is whole."""
        with draft_of(self.content_path(file_id)) as draft:
            draft.write_bytes(content)
        row = {"id": file_id, "filename": filename, "purpose": purpose, "bytes": len(content)}
        with self._engine.begin() as base:
            base.execute(sa.insert(_files).values(**row, created_at=_now()))

    def files(self) -> list[dict[str, Any]]:
        """All files, newest first."""
        with self._engine.connect() as base:
            rows = base.execute(sa.select(_files).order_by(_files.c.number.desc()))
            return [_file(row) for row in rows]

    def file(self, file_id: str) -> dict[str, Any] | None:
        """A file as the interface has it."""
        with self._engine.connect() as base:
            row = base.execute(sa.select(_files).where(_files.c.id == file_id)).first()
        return None if row is None else _file(row)

    def delete_file(self, file_id: str) -> None:
        """Forgets a file and removes its bytes."""
        with self._engine.begin() as base:
            base.execute(sa.delete(_files).where(_files.c.id == file_id))
        self.content_path(file_id).unlink(missing_ok=True)

    def add_job(
        self,
        job_id: str,
        *,
        key: str | None,
        request: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> Job:
        """A new job in the queue; with a key that one has already, that job."""
        row = {"id": job_id, "key": key, "request": dict(request), "settings": dict(settings)}
        try:
            with self._engine.begin() as base:
                base.execute(sa.insert(_jobs).values(**row, created_at=_now(), status="queued"))
        except sa.exc.IntegrityError:
            known = self.job_of_key(key) if key is not None else None
            if known is None:
                raise
            return known
        self.note(job_id, f"Created fine-tuning job: {job_id}")
        return self.job(job_id)

    def job(self, job_id: str) -> Job:
        """A job.

        Raises:
            KeyError: There is none of this id.
        """
        found = self._job(_jobs.c.id == job_id)
        if found is None:
            raise KeyError(job_id)
        return found

    def job_of_key(self, key: str) -> Job | None:
        """The job that was created under a key."""
        return self._job(_jobs.c.key == key)

    def jobs(self, *statuses: str) -> list[Job]:
        """Jobs, oldest first; all, or those in one of these states."""
        query = sa.select(_jobs).order_by(_jobs.c.number)
        if statuses:
            query = query.where(_jobs.c.status.in_(statuses))
        with self._engine.connect() as base:
            return [Job(*row) for row in base.execute(query)]

    def _job(self, condition: sa.ColumnElement[bool]) -> Job | None:
        with self._engine.connect() as base:
            row = base.execute(sa.select(_jobs).where(condition)).first()
        return None if row is None else Job(*row)

    def move(self, job_id: str, status: str, **values: Any) -> bool:
        """Gives an open job another state; False where it has ended already, and stays so."""
        ended = {"finished_at": _now()} if status in ENDED else {}
        change = sa.update(_jobs).where(_jobs.c.id == job_id, _jobs.c.status.in_(OPEN))
        with self._engine.begin() as base:
            result = base.execute(change.values(status=status, **ended, **values))
        return bool(result.rowcount)

    def count_start(self, job_id: str) -> None:
        """Notes that a worker begins or goes on."""
        counted = {"starts": _jobs.c.starts + 1}
        with self._engine.begin() as base:
            base.execute(sa.update(_jobs).where(_jobs.c.id == job_id).values(**counted))

    def note(self, job_id: str, message: str, *, level: str = "info") -> None:
        """Adds an event in words."""
        own = {"job": job_id, "level": level, "type": "message", "message": message, "data": {}}
        with self._engine.begin() as base:
            base.execute(sa.insert(_events).values(**own, created_at=_now()))

    def note_step(self, job_id: str, message: str, *, step: int, data: Mapping[str, Any]) -> None:
        """Adds the figures of a step once, and takes note that the job gets on."""
        own = {"job": job_id, "level": "info", "type": "metrics", "message": message}
        values = {**own, "data": dict(data), "step": step, "created_at": _now()}
        with self._engine.begin() as base:
            base.execute(sa.insert(_events).prefix_with("OR IGNORE").values(**values))
            base.execute(sa.update(_jobs).where(_jobs.c.id == job_id).values(starts=0))

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Of a job, newest first, as the interface has them."""
        query = sa.select(_events).where(_events.c.job == job_id)
        with self._engine.connect() as base:
            rows = base.execute(query.order_by(_events.c.number.desc()))
            return [_event(row) for row in rows]

    def add_checkpoint(self, job_id: str, step: int, *, model: str, loss: float) -> None:
        """Notes a model that a job has left on its way, once."""
        values = {"job": job_id, "step": step, "model": model, "loss": loss}
        with self._engine.begin() as base:
            query = sa.insert(_checkpoints).prefix_with("OR IGNORE")
            base.execute(query.values(**values, created_at=_now()))

    def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        """Of a job, newest first, as the interface has them."""
        query = sa.select(_checkpoints).where(_checkpoints.c.job == job_id)
        with self._engine.connect() as base:
            rows = base.execute(query.order_by(_checkpoints.c.step.desc()))
            return [_checkpoint(row) for row in rows]

    def models(self) -> dict[str, Path]:
        """The folder of every model that jobs have made, by its name."""
        made = {
            job.fine_tuned_model: self.job_folder(job.id) / "model"
            for job in self.jobs("succeeded")
            if job.fine_tuned_model is not None
        }
        with self._engine.connect() as base:
            for row in base.execute(sa.select(_checkpoints)):
                made[row.model] = self.job_folder(row.job) / f"model-{row.step}"
        return {name: folder for name, folder in made.items() if folder.is_dir()}


def _prepare(connection: Any, _record: object) -> None:
    # Readers do not wait for a writer, and what was committed outlives a kill.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _now() -> int:
    return int(time.time())


def _file(row: Any) -> dict[str, Any]:
    names = ("id", "bytes", "created_at", "filename", "purpose")
    own = {name: getattr(row, name) for name in names}
    return {**own, "object": "file", "status": "processed", "status_details": None}


def _event(row: Any) -> dict[str, Any]:
    names = ("created_at", "level", "message", "type", "data")
    own = {name: getattr(row, name) for name in names}
    return {**own, "id": f"ftevent-{row.number}", "object": "fine_tuning.job.event"}


def _checkpoint(row: Any) -> dict[str, Any]:
    return {
        "id": f"ftckpt-{row.number}",
        "object": "fine_tuning.job.checkpoint",
        "created_at": row.created_at,
        "fine_tuned_model_checkpoint": row.model,
        "fine_tuning_job_id": row.job,
        "metrics": {"step": row.step, "train_loss": row.loss},
        "step_number": row.step,
    }


def same_request(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two bodies ask for the same job."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
