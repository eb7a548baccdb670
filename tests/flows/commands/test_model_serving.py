import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from each_row import each_row
from job_service import client_of, supervised, uploaded

from astra_core.errors import ConfigurationError
from astra_parts.testing import tiny_language_model
from flows.cli import run_command
from flows.commands.model_serving import TOKEN, model_folders, system_of
from tasks.params.schema import read_params
from tasks.serving.fine_tuning.store import JobStore
from tasks.tracking.errors import TrackingError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch, restored):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    tiny_language_model(0).save(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_served_under_its_name_or_another(project):
    params = read_params()

    assert {"tiny": Path("tiny")} == model_folders(["tiny"], params)
    assert {"mine": Path("tiny")} == model_folders(["mine=tiny"], params)
    with pytest.raises(ConfigurationError, match="Hugging Face folder"):
        model_folders([str(ROOT / "docs")], params)
    with pytest.raises(ConfigurationError, match="names of their own, got 'tiny' twice"):
        model_folders(["tiny", "tiny=tiny"], params)
    for place in ("=tiny", "mine="):
        with pytest.raises(ConfigurationError, match=f"as NAME=FOLDER, got '{place}'"):
            model_folders([place], params)


def test_without_a_registry_there_is_no_champion_to_serve(project):
    with pytest.raises(TrackingError, match="champion"):
        model_folders(["champion"], read_params())


def test_jobs_read_as_the_attacker_does(project):
    params = read_params()

    assert params.system.max_context_tokens == system_of(params)["max_context_tokens"]


@pytest.mark.parametrize("command", ["serve", "serve-jobs"])
def test_beyond_this_machine_a_token_is_needed(project, capfd, monkeypatch, command):
    monkeypatch.delenv(TOKEN, raising=False)

    assert 2 == run_command([command, "tiny", "--host", "0.0.0.0"])  # noqa: S104
    assert TOKEN in capfd.readouterr().err


@each_row(
    "command, told",
    [
        (("serve", "tiny", "--port", "{busy}"), "must be a free address of this machine, got"),
        (("serve-jobs", "tiny", "--port", "{busy}"), "must be a free address of this machine, got"),
        (("serve", "tiny", "--host", "127.0.0.1", "--port", "99999"), "99999"),
        (
            ("serve-jobs", "tiny", "--folder", "params.yaml"),
            "--folder must be a folder to write to",
        ),
        (("serve-jobs", "tiny", "--folder", "params.yaml/x"), "--folder must be a folder to write"),
    ],
)
def test_where_it_cannot_serve_it_says_so_in_one_line(project, capfd, command, told):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        assert 2 == run_command([word.format(busy=busy) for word in command])
    (line,) = capfd.readouterr().err.splitlines()

    assert line.startswith("error: ")
    assert told in line


class Server:
    """``astra serve-jobs`` in a process of its own, and its address."""

    def __init__(self, project, *command):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *command, "--port", "0"],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.url = self.process.stdout.readline().split()[0]

    def end(self, number):
        self.process.send_signal(number)
        self.process.stdout.read()
        return self.process.wait()


def steps(store, job_id):
    return sum(own["type"] == "metrics" for own in store.events(job_id))


def wait_until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.real
def test_killed_server_and_worker_and_the_job_ends_all_the_same(project, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    first = Server(project, "serve-jobs", "tiny")
    client = client_of(first.url)
    file_id = uploaded(client, supervised(5))
    asked = {"model": "tiny", "training_file": file_id, "metadata": {"idempotency_key": "k"}}
    hyper = {"n_epochs": 50, "batch_size": 1}
    job = client.fine_tuning.jobs.create(**asked, hyperparameters=hyper).id
    store = JobStore(project / ".astra/jobs")
    wait_until(lambda: steps(store, job) > 5)
    assert -9 == first.end(signal.SIGKILL)
    # The worker outlives its server; it is killed too.
    for process in psutil.process_iter(["cmdline"]):
        if job in (process.info["cmdline"] or ()):
            process.kill()
    second = Server(project, "serve-jobs", "tiny")
    client = client_of(second.url)
    assert job == client.fine_tuning.jobs.create(**asked, hyperparameters=hyper).id
    wait_until(lambda: store.job(job).status not in {"queued", "running"})

    assert "succeeded" == store.job(job).status
    assert 250 == steps(store, job)
    assert [job] == [own.id for own in client.fine_tuning.jobs.list()]
    made = client.fine_tuning.jobs.retrieve(job).fine_tuned_model
    said = client.chat.completions.create(
        model=made, messages=[{"role": "user", "content": "why so"}], temperature=0, max_tokens=6
    )
    assert "you are bad" == said.choices[0].message.content
    assert second.end(signal.SIGINT) in {0, 130}


@pytest.mark.wide
def test_a_job_that_takes_longer_than_its_limit_fails_and_says_so(project, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    server = Server(project, "serve-jobs", "tiny", "--job-limit-s", "5")
    client = client_of(server.url)
    asked = {"model": "tiny", "training_file": uploaded(client, supervised(5))}
    hyper = {"n_epochs": 50, "batch_size": 1}
    job = client.fine_tuning.jobs.create(**asked, hyperparameters=hyper).id
    wait_until(lambda: client.fine_tuning.jobs.retrieve(job).status == "failed")

    error = client.fine_tuning.jobs.retrieve(job).error
    assert "job_timed_out" == error.code
    assert "a job must end within 5 s of its creation" in error.message
    assert server.end(signal.SIGINT) in {0, 130}


@pytest.mark.real
def test_a_served_model_answers_and_other_pages_are_turned_away(project):
    import httpx

    server = Server(project, "serve", "mine=tiny")
    assert ["mine"] == [own.id for own in client_of(server.url).models.list()]
    foreign = httpx.get(f"{server.url}/models", headers={"Origin": "http://elsewhere"})

    assert 403 == foreign.status_code
    assert server.end(signal.SIGINT) in {0, 130}
