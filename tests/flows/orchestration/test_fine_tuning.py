import pytest
from job_service import service_in, supervised

from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.wire import read_body


@pytest.fixture
def jobs(tmp_path):
    service = service_in(tmp_path)
    service.store.add_file("file-1", supervised(2), filename="a", purpose="fine-tune")
    body = read_body({"model": "tiny", "training_file": "file-1"}, JobBody)
    return service.store, [service.create(body).id for _ in range(3)]


@pytest.mark.real
def test_the_state_of_the_flow_run_is_that_of_the_job(jobs, prefect_server):
    from flows.orchestration.fine_tuning import fine_tuning

    store, (done, cancelled, failed) = jobs
    store.move(cancelled, "cancelled")
    store.move(failed, "failed", error={"code": "x", "message": "y", "param": None})

    def state(job):
        return fine_tuning(str(store.folder), job, return_state=True)

    assert state(done).is_completed()
    assert "succeeded" == store.job(done).status
    assert state(cancelled).is_cancelled()
    assert state(failed).is_failed()
