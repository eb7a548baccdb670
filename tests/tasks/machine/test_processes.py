"""Processes that run a stage together: started by ``run_together``, torchrun and accelerate."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from ruamel.yaml import YAML
from safetensors.numpy import load_file
from small_world import PARAMS, write_world

from tasks.machine.processes import run_together
from tasks.pipeline.failures import read_failure
from tasks.pipeline.stage import stage_of
from tasks.stages import rollouts

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
TRAINING = {
    "gradient_accumulation_steps": 1,
    "batch_size": 2,
    "optimizer": {"name": "sgd", "options": {}},
    "lr": 0.5,
    "training_steps": 3,
    "metric": "eval/kl_nats",
    "checkpoint": {"save_every": 1},
}
# Steps enough that a kill after the second comes long before the last.
LONG = 16


def act(code, *arguments):
    """What ``run_together`` calls: Python code in a process of its own."""
    return partial(subprocess.call, [sys.executable, "-c", code, *arguments])


TELL = """
import json, os, pathlib, psutil, sys

names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
meeting = psutil.Process(os.getppid()).parent().net_connections()
told = {
    "number": " ".join(os.environ[name] for name in names),
    "hosts": sorted({entry.laddr.ip for entry in meeting if entry.status == "LISTEN"}),
}
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each of two processes knows and sees."""
    folder = tmp_path_factory.mktemp("told")
    assert [0, 0] == run_together(act(TELL, str(folder)), 2)
    return [json.loads((folder / rank).read_text()) for rank in "01"]


@pytest.mark.real
def test_each_process_knows_its_number(told):
    assert ["0 0 2 127.0.0.1", "1 1 2 127.0.0.1"] == [each["number"] for each in told]


@pytest.mark.real
def test_what_the_processes_meet_at_listens_to_this_machine_alone(told):
    assert [["127.0.0.1"]] * 2 == [each["hosts"] for each in told]


@pytest.mark.real
def test_a_process_that_fails_or_is_killed_ends_the_others():
    code = (
        "import os, time\n"
        "if os.environ['RANK'] == '1': os.kill(os.getppid(), 9)\n"
        "else: time.sleep(300)"
    )
    first, second = run_together(act(code), 2)

    assert -signal.SIGKILL == second
    # One that had been left to sleep to its end would have 0.
    assert first not in {0, -signal.SIGKILL}


SLEEPERS = """
import subprocess
from functools import partial
from tasks.pipeline.failures import stop_on_terminate
from tasks.machine.processes import run_together

stop_on_terminate()
run_together(partial(subprocess.call, ["sleep", "300"]), 2)
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.wide), signal.SIGKILL]
)
def test_no_process_outlives_the_one_that_started_it(number):
    with subprocess.Popen([sys.executable, "-c", SLEEPERS], stderr=subprocess.DEVNULL) as parent:
        end = time.monotonic() + 240.0
        while time.monotonic() < end:
            children = psutil.Process(parent.pid).children(recursive=True)
            if 2 == [child.name() for child in children].count("sleep"):
                break
            time.sleep(0.1)
        group = {os.getpgid(child.pid) for child in children}
        parent.send_signal(number)
        _, alive = psutil.wait_procs(children, timeout=120)

    assert {os.getpgid(0)} == group
    assert [] == alive


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project as it is before the training stage."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        stage_of(rollouts.collect_rollouts).run(PARAMS)
    return folder


def project(world, folder, *, processes=1, **training):
    """A copy of it whose training is about the number of processes."""
    shutil.copytree(world, folder)
    record = json.loads(PARAMS.model_dump_json())
    record["machine"] |= {"num_processes": processes, "num_threads": 1}
    record["training"] |= TRAINING | training
    YAML(typ="safe", pure=True).dump(record, folder / "params.yaml")
    return folder


def commands():
    """Every way to train in two processes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    torchrun = [str(BIN / "torchrun"), "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    # With --cpu it starts one process, unless mpirun starts more.
    accelerate = [str(BIN / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2"]
    return {
        "params": [sys.executable, "-m", "tasks", "training"],
        "torchrun": [*torchrun, "--master-port", port, "-m", "tasks", "training"],
        "accelerate": [*accelerate, "--main_process_port", port, "-m", "tasks", "training"],
    }


def started(folder, command):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def spawned(process):
    """The processes of a stage below another, in the order they were started."""
    children = process.children(recursive=True)
    found = [p for p in children if "tasks" in p.cmdline() or "spawn_main" in str(p.cmdline())]
    return sorted(found, key=lambda child: child.pid)


def trained(folder, command):
    """What the command printed, once it is done."""
    process = started(folder, command)
    out, err = process.communicate(timeout=1200)
    assert 0 == process.returncode, err
    return out


def weights(folder, model="models/attacker"):
    found = load_file(folder / model / "model.safetensors")
    return np.concatenate([found[name].ravel() for name in sorted(found)])


def files(folder):
    """Everything that was written, but for the name of the run."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    runs = [path.name for path in (folder / "runs").iterdir()]
    return {name.replace(run, "RUN") for name in names for run in runs}


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory):
    """The project after one process has trained with the window of two."""
    folder = tmp_path_factory.mktemp("alone") / "project"
    project(world, folder, gradient_accumulation_steps=2)
    trained(folder, commands()["params"])
    return folder


# A kill of two processes that go on (below), and their sums, are in the middle tier.
@pytest.mark.wide
@pytest.mark.parametrize("way", ["params", "torchrun", "accelerate"])
def test_two_processes_train_as_one_with_the_doubled_window_and_the_first_writes(
    world, alone, tmp_path, way
):
    from mlflow import MlflowClient

    folder = project(world, tmp_path / "project", processes=2 if way == "params" else 1)
    said = trained(folder, commands()[way])

    moved = np.abs(weights(alone) - weights(world, "models/base/tiny"))
    assert moved.max() > 1e-3
    assert 1e-6 >= np.abs(weights(folder) - weights(alone)).max()
    assert ["training"] == [line.split()[0] for line in said.splitlines()]
    assert files(alone) == files(folder) - {".astra/logs/training.1.log"}
    (journal,) = folder.glob("runs/*/steps.jsonl")
    steps = [json.loads(line)["step"] for line in journal.read_text().splitlines()]
    assert list(range(1, len(steps) + 1)) == steps
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("red-team-training")
    (run,) = client.search_runs([experiment.experiment_id])
    assert ("FINISHED", "2") == (run.info.status, run.data.params["machine.num_processes"])


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    """The weights that two processes end with when none is killed, however they are started."""
    folder = tmp_path_factory.mktemp("undisturbed") / "project"
    project(world, folder, processes=2, training_steps=LONG)
    trained(folder, commands()["params"])
    return weights(folder)


@pytest.mark.real
@pytest.mark.parametrize("way", ["params", pytest.param("torchrun", marks=pytest.mark.wide)])
def test_a_killed_process_ends_the_run_with_a_line_and_the_command_continues(
    world, undisturbed, tmp_path, way
):
    processes = 2 if way == "params" else 1
    folder = project(world, tmp_path / "cut", processes=processes, training_steps=LONG)
    process = started(folder, commands()[way])
    # Only the last two are kept: on a busy machine the second may be gone before it is seen.
    while not any(path.name >= "step_000002" for path in folder.glob("runs/*/checkpoints/step_*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    ranks = spawned(psutil.Process(process.pid))
    assert 2 == len(ranks)
    ranks[1].kill()
    _, err = process.communicate(timeout=600)

    assert process.returncode
    lines = [line for line in err.splitlines() if "again to resume" in line]
    assert 1 == len(lines), err
    assert read_failure("training", folder=folder / ".astra/failures").retryable
    psutil.wait_procs(ranks, timeout=120)
    assert not any(p.is_running() for p in ranks)
    if way == "params":
        # A slow machine tells meanwhile how long it has been at work, and how far it is.
        assert lines == [line for line in err.splitlines() if not line.startswith("training  ")]
        assert "process 2 of 2 ended by SIGKILL" in lines[0]
    assert not (folder / "models/attacker").exists()
    trained(folder, commands()[way])
    assert (undisturbed == weights(folder)).all()
