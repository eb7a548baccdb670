from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from tasks.serving.fine_tuning.store import ENDED, OPEN, JobStore


@pytest.fixture
def store(tmp_path):
    found = JobStore(tmp_path / "jobs")
    yield found
    found.close()


def add(store, job_id, key=None):
    return store.add_job(job_id, key=key, request={"model": "tiny"}, settings={})


def test_clients_at_once_make_one_job_of_a_key(store):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: add(store, f"job-{number}", "key"), range(8)))

    assert 1 == len({job.id for job in found}) == len(store.jobs())


def test_jobs_without_a_key_are_many(store):
    assert "one" == add(store, "one").id
    assert "two" == add(store, "two").id


def test_a_job_that_has_ended_stays_so(store):
    add(store, "job")

    assert store.move("job", "cancelled")
    assert not store.move("job", "succeeded")
    assert "cancelled" == store.job("job").status
    assert store.job("job").finished_at is not None


def test_a_step_is_noted_once_and_forgives_earlier_starts(store):
    add(store, "job")
    store.count_start("job")
    store.count_start("job")
    assert 2 == store.job("job").starts
    for loss in (1.0, 2.0):
        store.note_step("job", "step", step=1, data={"train_loss": loss})

    steps = [own for own in store.events("job") if own["type"] == "metrics"]
    assert [1.0] == [own["data"]["train_loss"] for own in steps]
    assert 0 == store.job("job").starts

    # A worker that dies after each resumption repeats the step before: that is no progress.
    store.count_start("job")
    store.note_step("job", "step", step=1, data={"train_loss": 1.0})
    assert 1 == store.job("job").starts


def test_another_process_finds_what_was_written(store):
    store.add_file("file-1", b"{}", filename="a.jsonl", purpose="fine-tune")
    add(store, "job", "key")
    other = JobStore(store.folder)

    assert 2 == other.file("file-1")["bytes"]
    assert "job" == other.job_of_key("key").id
    assert 0o600 == (store.folder / "jobs.sqlite").stat().st_mode & 0o777
    other.delete_file("file-1")
    assert store.file("file-1") is None
    assert not store.content_path("file-1").exists()
    other.close()


@pytest.mark.real
def test_a_job_is_in_a_state_that_the_interface_knows_and_no_end_is_missing():
    from openai.types.fine_tuning import FineTuningJob

    words = set(get_args(FineTuningJob.model_fields["status"].annotation))

    # Files are checked before their job is made.
    assert words == {*OPEN, *ENDED, "validating_files"}


@pytest.mark.parametrize(
    ("status", "code"), [("queued", "job_expired"), ("running", "job_timed_out")]
)
def test_an_open_job_fails_when_its_time_is_over_and_not_before(store, status, code):
    begin = add(store, "job").created_at
    store.move("job", status)

    assert [] == store.expire(60.0, now=begin + 60.0)
    assert ["job"] == store.expire(60.0, now=begin + 61.0)
    job = store.job("job")
    assert ("failed", code) == (job.status, job.error["code"])
    words = f"a job must end within 60 s of its creation, got still {status}; create it again"
    assert job.error["message"].startswith(words)
    assert words in store.events("job")[0]["message"]
    assert [] == store.expire(60.0, now=begin + 62.0)


@pytest.mark.parametrize("status", ENDED)
def test_a_job_that_has_ended_does_not_expire(store, status):
    begin = add(store, "job").created_at
    store.move("job", status)

    assert [] == store.expire(1.0, now=begin + 100.0)
    assert status == store.job("job").status
    assert not store.fail("job", "too late", code="x")
