import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from job_service import service_in, supervised

from flows.servers.job_keeper import WORKER, JobKeeper, start_worker
from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.fine_tuning.store import DATABASE
from tasks.serving.fine_tuning.training import job_lock
from tasks.serving.wire import read_body


@pytest.fixture
def service(tmp_path):
    found = service_in(tmp_path)
    found.store.add_file("file-1", supervised(2), filename="a", purpose="fine-tune")
    return found


class Started(list):
    """Processes that do nothing for a while, and whose they are."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def __call__(self, _folder, job_id):
        code = f"import time; time.sleep({self.seconds})"
        process = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
        self.append((job_id, process))
        return process


def created(service):
    return service.create(read_body({"model": "tiny", "training_file": "file-1"}, JobBody))


def aged(store, job_id, *, seconds):
    """Makes a job, and its end, older."""
    change = (
        "UPDATE jobs SET created_at = created_at - :s, finished_at = finished_at - :s "
        "WHERE id = :id"
    )
    with closing(sqlite3.connect(store.folder / DATABASE, timeout=30)) as base, base:
        base.execute(change, {"s": seconds, "id": job_id})


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.real
def test_the_oldest_job_is_started_again_until_it_has_ended(service):
    first, second = created(service), created(service)
    started = Started(0)
    keeper = JobKeeper(service.store.folder, start=started)
    keeper.start()
    wait_until(lambda: len(started) > 1)
    assert {first.id} == {own[0] for own in started}
    service.store.move(first.id, "cancelled")
    wait_until(lambda: started[-1][0] == second.id)
    keeper.stop()


@pytest.mark.real
def test_a_job_that_another_process_trains_is_left_to_it(service):
    job = created(service)
    started = Started(0)
    keeper = JobKeeper(service.store.folder, start=started)
    with job_lock(service.store.job_folder(job.id)):
        keeper.start()
        assert not threading.Event().wait(0.7)
        assert not started
    wait_until(lambda: started)
    keeper.stop()


@pytest.mark.real
def test_the_process_of_a_job_ends_with_the_keeper(service):
    created(service)
    started = Started(600)
    keeper = JobKeeper(service.store.folder, start=started)
    keeper.start()
    wait_until(lambda: started)
    keeper.stop()

    assert started[0][1].returncode is not None


@pytest.mark.real
def test_a_job_that_never_ends_fails_at_its_limit_and_the_next_one_is_begun(service):
    first, second = created(service), created(service)
    started = Started(600)
    keeper = JobKeeper(service.store.folder, start=started, limit_s=60.0)
    keeper.start()
    wait_until(lambda: started)
    service.store.move(first.id, "running")
    aged(service.store, first.id, seconds=100)
    wait_until(lambda: len(started) > 1)
    keeper.stop()

    assert "job_timed_out" == service.store.job(first.id).error["code"]
    assert second.id == started[1][0]
    assert started[0][1].returncode is not None


@pytest.mark.real
def test_the_process_of_a_cancelled_job_does_not_hold_up_the_next_for_ever(service):
    first, second = created(service), created(service)
    started = Started(600)
    keeper = JobKeeper(service.store.folder, start=started)
    keeper.start()
    wait_until(lambda: started)
    service.store.move(first.id, "cancelled")
    assert not threading.Event().wait(0.5)
    assert started[0][1].poll() is None
    aged(service.store, first.id, seconds=100)
    wait_until(lambda: len(started) > 1)
    keeper.stop()

    assert second.id == started[1][0]
    assert "cancelled" == service.store.job(first.id).status


@pytest.mark.real
def test_without_a_prefect_server_a_worker_trains(service, monkeypatch, tmp_path):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    job = created(service)
    process = start_worker(service.store.folder, job.id)

    assert WORKER in process.args
    assert 0 == process.wait(120)
    assert "succeeded" == service.store.job(job.id).status
