import sqlalchemy as sa

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


def rows(table, **values):
    """What a new database has in a table after one row is added."""
    engine = sa.create_engine("sqlite://")
    TABLES.create_all(engine)
    with engine.begin() as base:
        base.execute(sa.insert(table).values(**values))
        found = base.execute(sa.select(table)).first()
    engine.dispose()
    return found


def test_a_file_is_reported_without_its_number():
    row = rows(FILES, id="file-1", created_at=5, filename="a.jsonl", purpose="fine-tune", bytes=2)
    told = file_record(row)

    assert {"id", "bytes", "created_at", "filename", "purpose"} < set(told)
    assert ("file", "processed") == (told["object"], told["status"])
    assert "number" not in told


def test_events_and_checkpoints_have_ids_of_their_numbers():
    event = rows(
        EVENTS, job="job", created_at=5, level="info", type="message", message="m", data={}
    )
    point = rows(CHECKPOINTS, job="job", created_at=5, step=3, model="mine", loss=0.5)

    assert "ftevent-1" == event_record(event)["id"]
    told = checkpoint_record(point)
    assert ("ftckpt-1", "job", 3) == (told["id"], told["fine_tuning_job_id"], told["step_number"])
    assert {"step": 3, "train_loss": 0.5} == told["metrics"]


def test_a_job_has_a_field_for_every_column():
    row = rows(JOBS, id="job", created_at=5, status="queued", request={"model": "m"}, settings={})
    job = Job(*row)

    assert ("job", "queued", {"model": "m"}, 0) == (job.id, job.status, job.request, job.starts)
