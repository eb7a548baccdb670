import signal
import subprocess
import sys
import time

import pytest
from each_row import each_row
from job_service import preferences, service_in, supervised

from astra_core.files import folder_digest
from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.fine_tuning.training import MAX_STARTS, job_lock, run_job, training_of
from tasks.serving.wire import read_body


def created(service, content, **more):
    service.store.add_file("file-1", content, filename="a", purpose="fine-tune")
    body = {"model": "tiny", "training_file": "file-1", "seed": 1, **more}
    return service.create(read_body(body, JobBody))


def losses(store, job):
    events = [own for own in store.events(job.id) if own["type"] == "metrics"]
    return [own["data"]["train_loss"] for own in reversed(events)]


@pytest.mark.real
@each_row(("method", "content"), [("supervised", supervised()), ("dpo", preferences())])
def test_a_job_learns_what_is_in_its_file(tmp_path, method, content):
    service = service_in(tmp_path)
    hyper = {"hyperparameters": {"n_epochs": 3}}
    job = created(service, content, method={"type": method, method: hyper})
    assert "succeeded" == run_job(service.store.folder, job.id)
    found = losses(service.store, job)

    assert 4 == len(found)
    assert found[-1] < found[0] / 2
    done = service.store.job(job.id)
    assert f"ft:tiny:astra::{job.id[-8:]}" == done.fine_tuned_model
    assert {"tiny", done.fine_tuned_model} < service.folders().keys()
    assert 2 == len(service.store.checkpoints(job.id))


@pytest.mark.real
def test_a_job_is_not_trained_twice_nor_by_two(tmp_path):
    service = service_in(tmp_path)
    job = created(service, supervised(2))
    with job_lock(service.store.job_folder(job.id)) as is_ours:
        assert is_ours
        assert "queued" == run_job(service.store.folder, job.id)
    assert "succeeded" == run_job(service.store.folder, job.id)
    before = service.store.events(job.id)

    assert "succeeded" == run_job(service.store.folder, job.id)
    assert before == service.store.events(job.id)


def test_a_cancelled_job_is_left_alone(tmp_path):
    service = service_in(tmp_path)
    job = created(service, supervised(2))
    service.store.move(job.id, "cancelled")

    assert "cancelled" == run_job(service.store.folder, job.id)
    assert not losses(service.store, job)


@pytest.mark.real
def test_a_job_that_is_cancelled_on_its_way_stops_before_the_next_step(tmp_path):
    service = service_in(tmp_path)
    job = created(service, supervised(), hyperparameters={"n_epochs": 50, "batch_size": 1})
    worker = started(service, job)
    wait_for_a_step(service, job)
    service.store.move(job.id, "cancelled")

    assert 0 == worker.wait(60)
    assert len(losses(service.store, job)) < 450
    assert service.store.job(job.id).fine_tuned_model is None


def test_what_a_user_can_fix_is_the_jobs_error(tmp_path):
    service = service_in(tmp_path)
    gone = created(service, supervised(2))
    service.store.delete_file("file-1")
    long = created(service, supervised(2, said=" ".join(["so"] * 200)))
    lost = created(service_in(tmp_path / "other"), supervised(2))
    other = service_in(tmp_path / "other").store
    for _ in range(MAX_STARTS):
        other.count_start(lost.id)

    assert "failed" == run_job(service.store.folder, long.id)
    assert "invalid_training_file" == service.store.job(long.id).error["code"]
    service.store.delete_file("file-1")
    assert "failed" == run_job(service.store.folder, gone.id)
    assert "failed" == run_job(other.folder, lost.id)
    assert "worker_lost" == other.job(lost.id).error["code"]


def test_the_settings_of_a_job_are_those_of_its_training():
    hyper = {"n_epochs": 2, "batch_size": 4, "learning_rate_multiplier": 0.5}
    own = {"lr": 0.02, "max_update_share": 0.1}
    config = training_of({"hyperparameters": hyper, "training": own}, [None] * 9)

    assert (5, 4, 0.01) == (config.training_steps, config.batch_size, config.lr)
    # A batch is one update, whatever an attacker's experience is divided into.
    assert 1.0 == config.max_update_share
    assert "expert_iteration" == config.algorithm.name
    with_beta = {"hyperparameters": {**hyper, "beta": 0.3}, "training": {}}
    assert {"beta": 0.3} == training_of(with_beta, [None] * 9).algorithm.options


def started(service, job):
    command = [sys.executable, "-m", "tasks.serving.fine_tuning.worker"]
    return subprocess.Popen(
        [*command, str(service.store.folder), job.id],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_a_step(service, job, count=1):
    end = time.monotonic() + 120
    while len(losses(service.store, job)) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.wide
def test_a_killed_job_continues_and_ends_with_the_same_weights(tmp_path):
    service = service_in(tmp_path)
    hyper = {"n_epochs": 20, "batch_size": 1}
    whole = created(service, supervised(5), hyperparameters=hyper)
    service.store.delete_file("file-1")
    killed = created(service, supervised(5), hyperparameters=hyper)
    assert "succeeded" == run_job(service.store.folder, whole.id)
    for count in (1, 12):
        worker = started(service, killed)
        wait_for_a_step(service, killed, count)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert "running" == service.store.job(killed.id).status
    assert "succeeded" == run_job(service.store.folder, killed.id)

    folders = [service.store.job_folder(job.id) for job in (whole, killed)]
    for name in ("model", "checkpoints"):
        assert 1 == len({folder_digest(folder / name) for folder in folders})
    assert losses(service.store, whole) == losses(service.store, killed)
    messages = [own["message"] for own in service.store.events(killed.id)]
    assert any(own.startswith("Resumed after step") for own in messages)
