"""What users of DVC expect: experiments, a queue, and a store that another clone pulls from."""

import json
import subprocess

import pytest
from project import make_project, run_in

pytestmark = pytest.mark.slow


def git(folder, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def dvc(folder, *arguments):
    return run_in(folder, "-m", "dvc", *arguments).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project under git whose first stage ran once, and then as an experiment."""
    folder = make_project(tmp_path_factory.mktemp("habits") / "project")
    dvc(folder, "repro", "prompts")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "first")
    dvc(folder, "exp", "run", "--set-param", "data_seed=1", "--name", "tried", "prompts")
    return folder


def test_an_experiment_runs_the_stage_with_its_parameter(project):
    shown = json.loads(dvc(project, "exp", "show", "--json"))

    assert "data_seed: 1" in (project / "params.yaml").read_text(encoding="utf-8")
    assert "tried" in str(shown)
    assert "up to date" in dvc(project, "status", "prompts")


def test_a_queued_experiment_waits(project):
    dvc(project, "exp", "run", "--queue", "--set-param", "data_seed=2", "prompts")

    assert "Queued" in dvc(project, "queue", "status")


def test_a_second_clone_pulls_what_the_first_pushed(project):
    dvc(project, "remote", "add", "--local", "--default", "store", str(project.parent / "store"))
    assert "pushed" in dvc(project, "push")
    git(project, "add", "--all")
    git(project, "commit", "-qm", "second")
    clone = project.parent / "clone"
    git(project, "clone", "-q", str(project), str(clone))
    dvc(clone, "remote", "add", "--local", "--default", "store", str(project.parent / "store"))
    dvc(clone, "pull", "prompts")

    name = "data/prompts/train.parquet"
    assert (project / name).read_bytes() == (clone / name).read_bytes()
    assert "up to date" in dvc(clone, "status", "prompts")
