import socket
import threading
import time
from contextlib import suppress

import pytest
from each_row import each_row
from hostile_jobs import HostileJobs
from job_service import served

from astra_core.errors import TrainingError
from astra_parts.bodies import MOST_JSON
from astra_parts.services.fine_tuning_client import KEY, FineTuning, ServiceRefusal

BODY = {"model": "tiny", "training_file": "file-0", "metadata": {KEY: "key"}}


@pytest.fixture
def asking():
    hostile = HostileJobs()
    with served(hostile.app) as url:
        client = FineTuning(url, pause_s=0.01)
        yield hostile, client
        client.close()


def test_files_and_jobs_are_found_by_what_they_were_created_with(asking):
    hostile, client = asking
    assert client.find_file("key") is None
    assert client.find_job("key") is None
    made = client.upload(b"{}\n", "key")
    job = client.create(BODY)

    assert made["id"] == client.find_file("key")["id"]
    assert job["id"] == client.find_job("key")["id"]
    hostile.jobs[0].pop("metadata")
    hostile.jobs[0]["suffix"] = "key"
    assert job["id"] == client.find_job("key")["id"]
    assert [b"{}\n"] == hostile.bodies


@each_row(
    ("status", "error", "outcome"),
    [
        ("succeeded", None, "succeeded"),
        ("failed", {"code": "server", "message": "x"}, "failed"),
        ("failed", {"code": "x", "message": "blocked by our usage policies"}, "refused"),
        ("cancelled", None, "cancelled"),
        ("expired", None, "expired"),
        ("failed", {"code": "job_expired", "message": "x"}, "expired"),
        ("failed", {"code": "job_timed_out", "message": "x"}, "expired"),
        ("timed_out", None, "expired"),
        ("running", None, None),
    ],
)
def test_a_job_is_read_as_one_of_the_outcomes(asking, status, error, outcome):
    hostile, client = asking
    job = client.create(BODY)["id"]
    hostile.statuses, hostile.error = (status,), error

    assert outcome == client.look(job).outcome


def test_looking_is_tried_again_and_creating_is_not(asking):
    hostile, client = asking
    hostile.lost = "create"
    with pytest.raises(TrainingError, match="POST fine_tuning/jobs must be answered"):
        client.create(BODY)
    assert 1 == hostile.asked["create"]
    hostile.lost = "look"

    assert "succeeded" == client.look("job-0").outcome
    assert 2 == hostile.asked["look"]


def test_moderation_is_a_refusal_and_its_words_are_masked(asking):
    hostile, client = asking
    hostile.refusal = "the file holds harmful words such as damn"
    with pytest.raises(ServiceRefusal) as refused:
        client.create(BODY)
    assert "damn" not in str(refused.value)
    hostile.refusal = "no such model"
    with pytest.raises(TrainingError) as failed:
        client.create(BODY)

    assert not isinstance(failed.value, ServiceRefusal)


def test_a_service_that_keeps_weights_gives_none(asking):
    assert asking[1].weights("tiny", most=9) is None
    assert not asking[1].gives_weights("tiny")


@pytest.mark.real
def test_an_answer_without_an_end_is_not_kept(asking):
    hostile, client = asking
    job = client.create(BODY)["id"]
    hostile.error, hostile.weights = {"message": "x" * MOST_JSON}, 5

    with pytest.raises(TrainingError, match=f"longer than {MOST_JSON} bytes"):
        client.look(job)
    assert b"wwwww" == client.weights("tiny", most=5)
    with pytest.raises(TrainingError, match=r"weights of tiny .* longer than 4 bytes"):
        client.weights("tiny", most=4)


def test_an_answer_that_comes_byte_by_byte_has_one_limit_of_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_drip, args=(listener,), daemon=True).start()
        client = FineTuning(
            f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3, pause_s=0.0
        )
        with pytest.raises(TrainingError, match=r"broke off \(TimeoutError\)"):
            client.upload(b"", "key")
        client.close()


def _drip(listener):
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.05)
