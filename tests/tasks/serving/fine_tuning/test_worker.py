import pytest
from job_service import service_in, supervised

from tasks.serving.fine_tuning import worker
from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.wire import read_body


@pytest.mark.real
def test_the_process_of_a_job_ends_well_when_the_job_has_ended(tmp_path):
    service = service_in(tmp_path)
    service.store.add_file("file-1", supervised(2), filename="a", purpose="fine-tune")
    job = service.create(read_body({"model": "tiny", "training_file": "file-1"}, JobBody))

    assert 0 == worker.main([str(service.store.folder), job.id])
    assert "succeeded" == service.store.job(job.id).status
