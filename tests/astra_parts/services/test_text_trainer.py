import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from each_row import each_row
from hostile_jobs import HostileJobs
from job_service import Worker, app_of, client_of, served, service_in
from text_training import IMITATION, run

from astra_core.errors import ConfigurationError, TrainingError
from astra_core.models.language_model import LanguageModel
from astra_parts.testing import tiny_system

TESTS = Path(__file__).parents[2]


@pytest.mark.real
@pytest.mark.parametrize(
    ("status", "error", "outcome", "words"),
    [
        ("cancelled", None, "cancelled", "creates another job"),
        ("failed", {"code": "x", "message": "out of memory"}, "failed", "creates another job"),
        ("expired", None, "expired", "creates another job"),
        ("failed", {"code": "moderation", "message": ""}, "refused", "astra serve-jobs"),
        ("running", None, "timed_out", "continues to wait"),
    ],
)
def test_a_job_that_ends_otherwise_is_reported_with_the_way_out(
    tmp_path, status, error, outcome, words
):
    hostile = HostileJobs(status, error=error)
    with served(hostile.app) as url:
        with pytest.raises(TrainingError, match=f"must succeed, got {outcome} .*{words}"):
            run(tmp_path, url, job_limit_s=0.1)
        chats = hostile.asked["chat"]
        hostile.statuses, hostile.error = ("succeeded",) * 9, None
        is_refused = outcome == "refused"
        if is_refused:
            with pytest.raises(TrainingError, match="refused"):
                run(tmp_path, url, job_limit_s=0.1)
        else:
            hostile.statuses = (status, "succeeded") if outcome != "timed_out" else ("succeeded",)
            run(tmp_path, url, job_limit_s=0.1)

    jobs = {"refused": 1, "timed_out": 2}.get(outcome, 3)
    assert jobs == hostile.asked["create"] == len(hostile.jobs)
    # Only the second iteration samples: what the first had sampled is kept.
    assert hostile.asked["chat"] == (chats if is_refused else 2 * chats)


@pytest.mark.real
def test_a_refused_file_is_terminal_and_costs_one_request(tmp_path):
    hostile = HostileJobs(refusal="blocked by the content policy")
    with served(hostile.app) as url:
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"got refused .*astra serve-jobs"):
                run(tmp_path, url)

    assert 1 == hostile.asked["create"]


@pytest.mark.real
@each_row("lost", ["upload", "create"])
def test_an_answer_that_was_lost_is_looked_up_and_nothing_made_twice(tmp_path, lost):
    hostile = HostileJobs(lost=lost)
    with served(hostile.app) as url:
        with pytest.raises(TrainingError, match="try again later"):
            run(tmp_path, url)
        trainer = run(tmp_path, url)

    assert (2, 2) == (len(hostile.files), len(hostile.jobs))
    assert "ft:1" == trainer.speaker.model
    assert ["tiny", "ft:0"] == [job["model"] for job in hostile.jobs]


@pytest.mark.real
def test_too_few_examples_are_an_outcome(tmp_path):
    hostile = HostileJobs()
    with served(hostile.app) as url:
        trainer = run(tmp_path, url, min_examples=1000)

    assert not hostile.jobs
    assert (2, "tiny") == (trainer.progress.training_step, trainer.speaker.model)


@pytest.mark.real
def test_a_job_may_begin_from_the_first_model_each_time(tmp_path):
    hostile = HostileJobs()
    hyper = {"n_epochs": 2}
    with served(hostile.app) as url:
        run(tmp_path, url, begin_from="base", hyperparameters=hyper)

    assert ["tiny", "tiny"] == [job["model"] for job in hostile.jobs]
    own = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
    assert own == hostile.jobs[0]["method"]


def test_what_cannot_be_trained_is_refused_before_anything_is_sent(tmp_path):
    hostile = HostileJobs()
    with served(hostile.app) as url:
        with pytest.raises(ConfigurationError, match="fine-tuning job learns from texts"):
            run(tmp_path, url, algorithm={"name": "grpo"})
        with pytest.raises(ConfigurationError, match="export: false"):
            run(tmp_path, url, export=True)

    assert not hostile.asked


@pytest.mark.real
@pytest.mark.parametrize(
    "algorithm",
    [
        IMITATION,
        {
            "name": "dpo",
            "options": {"backup": "leaf_mean", "midpoint": 0.2, "margin": 0.0, "discount": 1.0},
        },
    ],
)
def test_attackers_learn_at_a_real_service_and_come_home(tmp_path, algorithm):
    service = service_in(tmp_path)
    with served(app_of(service)) as url, Worker(service):
        trainer = run(tmp_path, url, algorithm=algorithm, export=True, min_examples=1)
    jobs = service.store.jobs()

    assert ["succeeded"] * len(jobs) == [job.status for job in jobs]
    assert jobs
    assert jobs[-1].fine_tuned_model == trainer.speaker.model
    trained = LanguageModel.load(service.folders()[trainer.speaker.model]).model.state_dict()
    here = trainer.sampler.system.attacker.model.state_dict()
    assert all(torch.equal(here[name], tensor) for name, tensor in trained.items())
    untrained = tiny_system(0).attacker.model.state_dict()
    assert any(not torch.equal(here[name], tensor) for name, tensor in untrained.items())


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.wide
def test_a_run_that_is_killed_after_any_change_of_its_state_pays_nothing_twice(
    tmp_path, monkeypatch
):
    from astra_parts.services.trainer_state import TrainerState

    write = TrainerState._write
    calls, limit = [], [0]

    def counted(state):
        write(state)
        calls.append(1)
        if len(calls) == limit[0]:
            raise Killed

    hostile = HostileJobs()
    monkeypatch.setattr(TrainerState, "_write", counted)
    with served(hostile.app) as url:
        run(tmp_path / "whole", url)
        num_writes, chats = len(calls), hostile.asked["chat"]
        assert num_writes > 10
        for number in range(1, num_writes + 1):
            killed = HostileJobs()
            with served(killed.app) as other:
                calls.clear()
                limit[0] = number
                with pytest.raises(Killed):
                    run(tmp_path / str(number), other)
                trainer = run(tmp_path / str(number), other)
            assert (2, 2, chats) == (len(killed.files), len(killed.jobs), killed.asked["chat"])
            assert "ft:1" == trainer.speaker.model
            assert hostile.bodies == killed.bodies


def expired(service, _):
    return service.store.expire(-1.0)


def cancelled(service, url):
    jobs = client_of(url).fine_tuning.jobs
    return [jobs.cancel(job.id).id for job in service.store.jobs("queued")]


def failed(service, _):
    # As where a worker dies again and again.
    jobs = service.store.jobs("queued")
    return [job.id for job in jobs if service.store.fail(job.id, "lost", code="worker_lost")]


@pytest.mark.wide
@pytest.mark.parametrize(
    ("ends", "status", "code"),
    [
        (expired, "failed", "job_expired"),
        (cancelled, "cancelled", None),
        (failed, "failed", "worker_lost"),
    ],
)
def test_a_job_that_ends_otherwise_at_the_own_service_is_made_again(tmp_path, ends, status, code):
    service = service_in(tmp_path)
    with served(app_of(service)) as url:

        def end():
            while not ends(service, url):
                time.sleep(0.02)

        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        # What a service says is masked.
        told = f"must succeed, got {ends.__name__} .*; the same command creates another"
        with pytest.raises(TrainingError, match=told):
            run(tmp_path, url, export=True, min_examples=1)
        thread.join()
        with Worker(service):
            trainer = run(tmp_path, url, export=True, min_examples=1)

    ended, *made = service.store.jobs()
    assert (status, code) == (ended.status, (ended.error or {}).get("code"))
    assert {"succeeded"} == {job.status for job in made}
    assert made[-1].fine_tuned_model == trainer.speaker.model
    assert ended.request["model"] == made[0].request["model"]


@pytest.mark.wide
@pytest.mark.timeout(1800)
def test_processes_killed_after_each_stage_cost_nothing_twice(tmp_path):
    places = [TESTS.parent, TESTS / "astra_core", TESTS / "tasks"]
    done = subprocess.run(
        [sys.executable, TESTS / "astra_core" / "killed_text_training.py", tmp_path],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"},
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    quiet = found["quiet"]

    assert ["succeeded"] * 2 == quiet["jobs"]
    assert 2 == quiet["paid"]["/v1/fine_tuning/jobs"] == quiet["paid"]["/v1/files"]
    assert quiet["paid"]["/v1/chat/completions"] > 0
    assert quiet == found["killed"]
