"""The whole chain on real parts: DVC, stages in processes of their own, MLflow, kill -9."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from project import ROOT, environment, run_in, set_params
from shared import finished_project

from flows.cli import run_command

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

WEIGHTS = "models/attacker/model.safetensors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project in which every stage has run: by ``astra run``; test_privacy has ``dvc repro``."""
    return finished_project(tmp_path_factory)


@pytest.fixture
def copy_of(tmp_path):
    """Makes copies of a project, for tests that change it."""

    def copy(folder):
        path = tmp_path / "copy"
        shutil.copytree(folder, path, symlinks=True)
        return path

    return copy


def test_a_run_without_git_makes_what_dvc_would_and_a_second_one_has_nothing_to_do(finished):
    log = run_in(finished.folder, "-m", "dvc", "repro").stdout
    status = run_in(finished.folder, "-m", "dvc", "status").stdout

    assert " " in finished.folder.name
    assert not (finished.folder / ".git").exists()
    assert "up to date" not in finished.said
    assert "Running stage" not in log
    assert 7 == log.count("didn't change, skipping")
    assert "up to date" in status
    files = [path for path in finished.fresh.iterdir() if path.is_file()]
    assert [] == [p for p in files if p.read_bytes() != (finished.folder / p.name).read_bytes()]
    receipt = json.loads((finished.folder / "reports/registration.json").read_text())
    assert "1" == str(receipt["version"])
    evaluation = json.loads((finished.folder / "reports/evaluation.json").read_text())
    assert 12 == evaluation["num_prompts"]
    for line in ("registered     attacker version 1", "promotion      attacker version 1"):
        assert line in finished.said


def test_no_report_holds_an_attack_in_clear(finished):
    import pyarrow.parquet as pq

    rows = pq.read_table(finished.folder / "data/rollouts/rollouts.parquet").to_pylist()
    probes = {row["probe_text"] for row in rows if len(row["probe_text"].split()) > 3}
    files = [path for path in (finished.folder / "reports").rglob("*") if path.is_file()]
    reports = [path for path in files if path.suffix != ".parquet"]
    shown = "".join(path.read_text(encoding="utf-8") for path in reports)

    assert probes
    assert [] == [probe for probe in probes if probe in shown]


@pytest.fixture
def astra(finished, restored, monkeypatch, capfd):
    """What a command says in the project's folder."""
    monkeypatch.chdir(finished.folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{finished.folder}/mlflow.db")

    def call(*words):
        status = run_command(words)
        return status, capfd.readouterr().out

    return call


def test_examples_are_shown_masked_and_in_clear_on_purpose(astra):
    _, masked = astra("examples", "--count", "2")
    _, clear = astra("examples", "--reveal")

    assert "·" in masked
    assert "·" not in clear
    assert "Content warning" in masked
    assert "Content warning" in clear


def test_status_and_doctor_know_of_the_run(astra):
    assert 7 == astra("status")[1].count("up to date")
    assert "MLflow's store" in astra("doctor")[1]


def test_the_notebook_of_a_first_run_reads_what_a_run_left(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((ROOT / "examples/1_first_run.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "notebook.py").write_text("\n".join(code))
    said = run_in(finished.folder, str(tmp_path / "notebook.py")).stdout

    assert 7 == said.count("up to date\n")
    assert "Content warning" in said


@pytest.mark.wide
def test_training_killed_midway_ends_with_the_same_bytes(finished, copy_of):
    folder = copy_of(finished.folder)
    expected = (folder / WEIGHTS).read_bytes()
    _forget_training(folder)

    _kill_after_checkpoints(folder, 3)
    assert not (folder / WEIGHTS).exists()
    before = sorted(path.name for path in folder.glob("runs/*/checkpoints/step_*"))
    run_in(folder, "-m", "tasks", "training")

    assert before
    assert expected == (folder / WEIGHTS).read_bytes()


@pytest.mark.wide
def test_dvc_repro_trains_in_as_many_processes_as_params_say(finished, copy_of):
    folder = copy_of(finished.folder)
    set_params(folder, "machine.num_processes=2")
    run_in(folder, "-m", "dvc", "repro", "-q", "training")

    assert (folder / ".astra/logs/training.1.log").exists()
    changed = run_in(folder, "-m", "dvc", "status", "training").stdout
    assert "training:" not in changed


@pytest.mark.wide
def test_the_same_parameters_give_the_same_bytes_again(finished, copy_of):
    folder = copy_of(finished.folder)
    expected = (folder / WEIGHTS).read_bytes()
    _forget_training(folder)
    run_in(folder, "-m", "tasks", "training")

    assert expected == (folder / WEIGHTS).read_bytes()


@pytest.mark.wide
def test_a_damaged_newest_checkpoint_is_passed_over(finished, copy_of):
    folder = copy_of(finished.folder)
    expected = (folder / WEIGHTS).read_bytes()
    shutil.rmtree(folder / "models/checkpoint")
    (folder / "dvc.lock").unlink()
    newest = max(folder.glob("runs/*/checkpoints/step_*"))
    (newest / "state.safetensors").write_bytes(b"damaged")
    run_in(folder, "-m", "tasks", "training")

    assert expected == (folder / WEIGHTS).read_bytes()


@pytest.mark.wide
def test_damaged_checkpoints_are_one_clear_line(finished, copy_of):
    folder = copy_of(finished.folder)
    for state in folder.glob("runs/*/checkpoints/step_*/state.safetensors"):
        state.write_bytes(b"damaged")
    result = run_in(folder, "-m", "tasks", "training", check=False)

    assert 2 == result.returncode
    assert 1 == len(result.stderr.splitlines())
    assert "must hold an undamaged checkpoint" in result.stderr


@pytest.mark.wide
def test_an_empty_prompt_file_is_one_clear_line(finished, copy_of):
    folder = copy_of(finished.folder)
    (folder / "mine.txt").write_text("", encoding="utf-8")
    set_params(folder, "prompts.source=file", "prompts.path=mine.txt")
    result = run_in(folder, "-m", "tasks", "prompts", check=False)

    assert 2 == result.returncode
    assert 1 == len(result.stderr.splitlines())
    assert "mine.txt" in result.stderr


@pytest.mark.wide
def test_an_edited_prompt_file_runs_the_prompts_stage_again(finished, copy_of):
    folder = copy_of(finished.folder)
    lines = [f"Tell me about thing number {number}." for number in range(300)]
    (folder / "mine.txt").write_text("\n".join(lines), encoding="utf-8")
    set_params(folder, "prompts.source=file", "prompts.path=mine.txt")
    run_in(folder, "-m", "dvc", "repro", "-q", "--single-item", "prompts")
    (folder / "mine.txt").write_text("\n".join(lines[:200]), encoding="utf-8")
    status = run_in(folder, "-m", "dvc", "status", "prompts").stdout

    assert "mine.txt" in status


def _forget_training(folder):
    """Takes away every state that training could go on from."""
    for place in ("runs", "models/attacker", "models/checkpoint"):
        shutil.rmtree(folder / place)
    # By which the last state would be found in DVC's cache.
    (folder / "dvc.lock").unlink()


def _kill_after_checkpoints(folder, count):
    """Starts the training stage and kills it once ``count`` checkpoints are written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks", "training"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wanted = f"step_{count:06d}"
    deadline = time.monotonic() + 300
    while not list(folder.glob(f"runs/*/checkpoints/{wanted}")):
        assert process.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
