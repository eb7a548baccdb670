"""The trainer ``remote`` at a real server: ``make services`` makes it, else these are skipped."""

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from tinker_server import base_model, done_at, free_port, is_made, tinker_server

pytestmark = [
    pytest.mark.real,
    # What a server compiles for the first time takes it minutes.
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not is_made(), reason="make services was not run"),
    pytest.mark.skipif(
        importlib.util.find_spec("tinker") is None, reason="the extra remote is not installed"
    ),
]
# The client's threads end with its process, so each of its uses has one.
HERE = Path(__file__).parent / "servers"
SERVER = HERE.with_name("tinker_server.py")
LOSSES, TRAINING = HERE / "tinker_losses.py", HERE / "tinker_training.py"
LEARNING = ("--steps", "3", "--episodes", "16", "--dev", "160", "--eval-every", "3")
# Boundaries at which one process after the other dies, after each stage of the first iteration: it
# begins with a boundary, and is begun again after each death but the one after its checkpoint.
DEATHS = (2, 3, 4, 5)
# A server that has to compile again may take longer than a wait; the same command resumes.
STARTS = 5
LIMIT_S = 30
WORK = ("SAMPLE", "FORWARD_BACKWARD", "OPTIM_STEP", "SAVE_WEIGHTS")


PUBLISHED = "SAVE_WEIGHTS_FOR_SAMPLER"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server that docs/services.md starts, and the base model in its word."""
    folder = tmp_path_factory.mktemp("tinker")
    command = [sys.executable, SERVER, folder, str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        started.stdout.readline()  # the environment is complete
        told = dict(started.stdout.readline().strip().split(": ") for _ in range(2))
        yield SimpleNamespace(folder=folder, address=told["address"], model=told["base_model"])
        started.terminate()


@pytest.fixture(scope="module")
def quiet(server, tmp_path_factory):
    """A run that nobody disturbed."""
    return finished(server, tmp_path_factory.mktemp("quiet"))


def start(server, folder, *arguments):
    """One process of a run."""
    command = [sys.executable, TRAINING, folder / "run", server.address, server.model]
    return subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(server, folder, *arguments, deaths=()):
    """What a run came to whose processes died at these boundaries, and what it asked for."""
    before = done_at(server.folder)
    for boundary in deaths:
        process = start(server, folder, *arguments, "--die-at", str(boundary))
        _, errors = process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, errors[-2000:]
    process = start(server, folder, *arguments)
    said, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, errors[-2000:]
    record = json.loads(said.splitlines()[-1])
    return SimpleNamespace(**record, done=done_at(server.folder) - before, drawn=drawn(folder))


def drawn(folder):
    """Token ids of all draws, in the order in which they were made."""
    with closing(sqlite3.connect(folder / "run" / "service" / "draws.sqlite")) as base:
        rows = base.execute("SELECT value FROM kept ORDER BY rowid").fetchall()
    values = [json.loads(value) for (value,) in rows]
    return [value[0] for value in values if len(value) == 2]


@pytest.mark.wide
def test_the_servers_losses_are_ours_beyond_the_clip_too(server):
    done = subprocess.run(
        [sys.executable, LOSSES, server.address, server.model],
        check=False,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (theirs, ours) in json.loads(done.stdout.splitlines()[-1]).items():
        assert theirs == pytest.approx(ours, abs=1e-4), name


def test_a_run_samples_trains_and_publishes_at_the_server(quiet):
    assert [] == [kind for kind in (*WORK, PUBLISHED) if not quiet.done[kind]]
    assert 1 == quiet.done["CREATE_MODEL"]
    # An estimate from few probes, of either sign.
    untrained, *trained = (abs(point["eval/kl_nats"]) for point in quiet.evaluations)
    assert 2 == len(trained)
    assert untrained < 1e-4
    assert 1e-2 < min(trained)


@pytest.mark.wide
def test_three_iterations_raise_the_mean_score(server, tmp_path):
    run = finished(server, tmp_path, *LEARNING)
    untrained, trained = run.evaluations[0], run.evaluations[-1]
    sys.stdout.write(f"{untrained}\n{trained}\n")
    assert untrained["eval/score_mean_high"] < trained["eval/score_mean_low"]


@pytest.mark.wide
def test_killed_after_each_stage_nothing_is_asked_twice(server, quiet, tmp_path):
    killed = finished(server, tmp_path, deaths=DEATHS)
    for kind in WORK:
        assert killed.done[kind] == quiet.done[kind], kind
    # The server unloads a model whose process is long gone; it is then published once more.
    again = killed.done[PUBLISHED] - quiet.done[PUBLISHED]
    assert 0 <= again <= len(DEATHS)
    # The process that trains the second iteration goes on from what the first one saved.
    assert quiet.done["CREATE_MODEL"] == 1
    assert 2 <= killed.done["CREATE_MODEL"] <= 2 + again
    assert killed.drawn == quiet.drawn
    for found, expected in zip(killed.evaluations, quiet.evaluations, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.wide
def test_a_server_that_is_killed_ends_the_run_in_a_line_which_then_continues(quiet, tmp_path):
    folder, port = tmp_path / "server", free_port()
    folder.mkdir()
    model, limit = base_model(folder), ("--limit-s", str(LIMIT_S))
    with tinker_server(folder, port) as address:
        place = SimpleNamespace(folder=folder, address=address, model=model)
        process = start(place, tmp_path, *limit)
        while done_at(folder)["FORWARD_BACKWARD"] < 2:
            assert process.poll() is None, process.communicate()[1][-2000:]
            time.sleep(0.05)
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "trainer 'remote': the service must" in errors.splitlines()[-1]
    with tinker_server(folder, port):
        for _ in range(STARTS):
            process = start(place, tmp_path, *limit)
            said, errors = process.communicate(timeout=1200)
            if process.returncode == 0:
                break
    assert process.returncode == 0, errors[-2000:]
    assert drawn(tmp_path) == quiet.drawn
    assert len(json.loads(said.splitlines()[-1])["evaluations"]) == len(quiet.evaluations)
    assert done_at(folder)["SAMPLE"] == quiet.done["SAMPLE"]
