"""A run of a clone against the servers of deploy/compose.yaml, as docs/deployments.md has it."""

import subprocess
import sys

import pytest
from project import environment
from shared import finished_project
from team_servers import postgres_folder, team_servers

from tasks.pipeline.names import STAGE_NAMES

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(postgres_folder() is None, reason="Postgres is not installed"),
]
WEIGHTS = "models/attacker/model.safetensors"
BEFORE = STAGE_NAMES[: STAGE_NAMES.index("registration")]


def in_project(folder, team, *command):
    """What a command of the project says, with the team's servers."""
    known = environment(folder)
    path = f"{known['PYTHONPATH']}:{team.variables['PYTHONPATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**known, **team.variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def dvc(folder, team, *arguments):
    return in_project(folder, team, sys.executable, "-m", "dvc", *arguments)


def git(folder, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_clone_uses_postgres_the_artifact_proxy_and_s3(tmp_path, tmp_path_factory, monkeypatch):
    from mlflow import MlflowClient

    folder = tmp_path / "project"
    finished_project(tmp_path_factory).copy_after(folder, *BEFORE)
    with team_servers(tmp_path) as team:
        in_project(folder, team, sys.executable, "-m", "flows.cli", "run")
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
            monkeypatch.setenv(name, team.variables[name])
        client = MlflowClient(team.variables["MLFLOW_TRACKING_URI"])
        (model,) = client.search_registered_models()
        (version,) = client.search_model_versions(f"name='{model.name}'")
        kept = list(team.artifacts.rglob("model.safetensors"))
        rows = [team.count("mlflow", "model_versions"), team.count("prefect", "flow_run") > 0]

        dvc(folder, team, "remote", "add", "-d", "--local", "team", "s3://dvc")
        dvc(folder, team, "remote", "modify", "--local", "team", "endpointurl", team.s3)
        dvc(folder, team, "push")
        git(folder, "add", "--all")
        git(folder, "commit", "-qm", "first")
        clone = tmp_path / "clone"
        git(folder, "clone", "-q", str(folder), str(clone))
        dvc(clone, team, "remote", "add", "-d", "--local", "team", "s3://dvc")
        dvc(clone, team, "remote", "modify", "--local", "team", "endpointurl", team.s3)
        dvc(clone, team, "pull", "training")

    assert [1, True] == rows
    assert "READY" == version.status
    assert version.source.startswith("mlflow-artifacts:") or "models:" in version.source
    assert (folder / WEIGHTS).read_bytes() in [file.read_bytes() for file in kept]
    assert (folder / WEIGHTS).read_bytes() == (clone / WEIGHTS).read_bytes()
