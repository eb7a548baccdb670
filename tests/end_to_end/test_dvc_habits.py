"""What users of DVC expect: experiments, a queue, and a store that another clone pulls from."""

import importlib.util
import json
import socket
import subprocess
import sys
import time

import pytest
from project import run_in, set_params
from shared import finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


def git(folder, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def dvc(folder, *arguments):
    return run_in(folder, "-m", "dvc", *arguments).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project under git whose first stage ran once, and then as an experiment."""
    finished = finished_project(tmp_path_factory)
    folder = finished.copy_after(tmp_path_factory.mktemp("habits") / "project", "prompts")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "first")
    dvc(folder, "exp", "run", "--set-param", "data_seed=1", "--name", "tried", "prompts")
    return folder


def test_an_experiment_runs_the_stage_with_its_parameter(project):
    shown = json.loads(dvc(project, "exp", "show", "--json"))

    assert "data_seed: 1" in (project / "params.yaml").read_text(encoding="utf-8")
    assert "tried" in str(shown)
    assert "up to date" in dvc(project, "status", "prompts")


@pytest.mark.wide
def test_an_experiment_is_applied_again(project):
    git(project, "checkout", "-q", "--", "params.yaml", "dvc.lock")
    dvc(project, "repro", "prompts")
    before = (project / "data/prompts/train.parquet").read_bytes()
    # DVC complains of the stages that were never run here, and applies the rest.
    run_in(project, "-m", "dvc", "exp", "apply", "tried", check=False)

    assert "data_seed: 1" in (project / "params.yaml").read_text(encoding="utf-8")
    assert before != (project / "data/prompts/train.parquet").read_bytes()
    assert "up to date" in dvc(project, "status", "prompts")


@pytest.mark.wide
def test_a_queued_experiment_waits(project):
    dvc(project, "exp", "run", "--queue", "--set-param", "data_seed=2", "prompts")

    assert "Queued" in dvc(project, "queue", "status")


@pytest.mark.wide
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


@pytest.mark.wide
def test_imported_prompts_are_watched_and_updated(project):
    outside, file = project.parent / "prompts.txt", project / "my" / "prompts.txt"
    outside.write_text("\n".join(f"why are you number {n}" for n in range(300)), "utf-8")
    file.parent.mkdir()
    dvc(project, "import-url", str(outside), "my/prompts.txt")
    set_params(project, "prompts.source=file", "prompts.path=my/prompts.txt")
    dvc(project, "repro", "prompts")
    assert "" == stage_changes(project)
    outside.write_text(outside.read_text("utf-8") + "\nand one more", "utf-8")
    dvc(project, "update", "my/prompts.txt.dvc")

    assert "my/prompts.txt" in stage_changes(project)


def stage_changes(project):
    """What DVC finds changed for the first stage."""
    return str(json.loads(dvc(project, "status", "--json")).get("prompts", ""))


@pytest.mark.wide
def test_after_a_checkout_of_an_older_lock_all_is_clean(tmp_path_factory):
    from mlflow import MlflowClient

    folder = finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("older") / "a")
    git(folder, "init", "-q")
    for name in (".dvc/config.local", "runs.log"):
        (folder / name).unlink(missing_ok=True)
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "first")
    set_params(folder, "evaluation.num_prompts=10")
    dvc(folder, "repro", "-q")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    second = str(client.get_model_version_by_alias("attacker", "candidate").version)
    git(folder, "checkout", "-q", "--", "params.yaml", "dvc.lock", "dvc.yaml")
    dvc(folder, "checkout")
    status = dvc(folder, "status")
    said = run_in(folder, "-m", "flows.cli", "run").stdout

    assert "2" == second
    assert "up to date" in status
    assert "registration the files here are those of another version: once more" in said
    assert "1" == str(client.get_model_version_by_alias("attacker", "candidate").version)
    assert 2 == len(client.search_model_versions("name = 'attacker'"))
    shown = json.loads(dvc(folder, "metrics", "show", "--json"))
    assert 5 == len(shown[""]["data"]["reports/headline.json"]["data"])


NEEDED = ("moto", "flask", "dvc_s3")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The address of a server of the S3 protocol with an empty bucket."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    for name, value in zip(names, ("a", "b", "us-east-1"), strict=True):
        monkeypatch.setenv(name, value)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _make_bucket(url)
            yield url
        finally:
            server.terminate()


def _make_bucket(url):
    import boto3
    from botocore.exceptions import BotoCoreError

    client = boto3.client("s3", endpoint_url=url)
    for _ in range(120):
        try:
            client.create_bucket(Bucket="dvc")
        except BotoCoreError:
            time.sleep(0.5)
        else:
            return


@pytest.mark.wide
@pytest.mark.skipif(bool(MISSING), reason=f"pip install 'moto[server]' dvc-s3: no {MISSING}")
def test_a_second_clone_pulls_from_an_s3_store(project, bucket, tmp_path):
    add = ("remote", "add", "--local", "--force", "--default", "team", "s3://dvc")
    modify = ("remote", "modify", "--local", "team", "endpointurl", bucket)
    dvc(project, *add)
    dvc(project, *modify)
    assert "pushed" in dvc(project, "push", "prompts")
    git(project, "add", "--all")
    git(project, "commit", "--allow-empty", "-qm", "for the store")
    clone = tmp_path / "clone"
    git(project, "clone", "-q", str(project), str(clone))
    dvc(clone, *add)
    dvc(clone, *modify)
    dvc(clone, "pull", "prompts")

    name = "data/prompts/train.parquet"
    assert (project / name).read_bytes() == (clone / name).read_bytes()
