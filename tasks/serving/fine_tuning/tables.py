"""The tables of the job service, and their rows in the interface's form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

TABLES = sa.MetaData()

FILES = sa.Table(
    "files",
    TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("filename", sa.String, nullable=False),
    sa.Column("purpose", sa.String, nullable=False),
    sa.Column("bytes", sa.Integer, nullable=False),
)
JOBS = sa.Table(
    "jobs",
    TABLES,
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
EVENTS = sa.Table(
    "events",
    TABLES,
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
CHECKPOINTS = sa.Table(
    "checkpoints",
    TABLES,
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
    """A job in the database.

    ``starts``: how often a worker has begun or resumed it since its last step.
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


def file_record(row: Any) -> dict[str, Any]:
    """A file in the interface's form."""
    names = ("id", "bytes", "created_at", "filename", "purpose")
    own = {name: getattr(row, name) for name in names}
    return {**own, "object": "file", "status": "processed", "status_details": None}


def event_record(row: Any) -> dict[str, Any]:
    """An event in the interface's form."""
    names = ("created_at", "level", "message", "type", "data")
    own = {name: getattr(row, name) for name in names}
    return {**own, "id": f"ftevent-{row.number}", "object": "fine_tuning.job.event"}


def checkpoint_record(row: Any) -> dict[str, Any]:
    """A checkpoint in the interface's form."""
    return {
        "id": f"ftckpt-{row.number}",
        "object": "fine_tuning.job.checkpoint",
        "created_at": row.created_at,
        "fine_tuned_model_checkpoint": row.model,
        "fine_tuning_job_id": row.job,
        "metrics": {"step": row.step, "train_loss": row.loss},
        "step_number": row.step,
    }
