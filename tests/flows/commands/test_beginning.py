import json
import subprocess
from pathlib import Path

import pytest
import yaml
from each_row import each_row

from flows.cli import run_command
from flows.commands.beginning import renew, requirement
from flows.status import changed_stages
from tasks.params.schema import read_params
from tasks.pipeline.order import drift


@pytest.fixture
def outside(tmp_path, monkeypatch, restored):
    """A folder that is no project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.real
def test_init_makes_a_project_that_passes_its_check(outside, monkeypatch, capsys):
    Path("mine.jsonl").write_text(json.dumps({"text": "why now"}) + "\n", "utf-8")

    assert 0 == run_command(["init", "new project", "--prompts", "mine.jsonl"])
    assert "next         cd 'new project'; astra check; astra run" in capsys.readouterr().out
    monkeypatch.chdir(outside / "new project")
    params = read_params()
    assert ("file", Path("prompts/mine.jsonl")) == (params.prompts.source, params.prompts.path)
    assert drift(params=params) is None
    assert 0 == run_command(["check", "--preset", "curiosity"])
    # The package's own presets, which an upgrade renews.
    assert [] == [*Path("params").glob("*.yaml")]
    ignored = subprocess.run(["git", "check-ignore", "-q", "mlflow.db"], check=False)
    assert 0 == ignored.returncode
    told = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    assert {"dvc.yaml", "stage.sh", "prompts/mine.jsonl", "README.md"} <= {*told.splitlines()}
    pin = f"astra-red-team[ops] @ {Path(__file__).parents[3].as_uri()}\n"
    assert pin == Path("requirements.txt").read_text("utf-8")


URL = "https://example.org/astra.git"


@each_row(
    ("source", "end"),
    [
        ({}, "==1.2"),
        ({"url": "file:///a/clone", "dir_info": {}}, " @ file:///a/clone"),
        ({"url": URL, "vcs_info": {"vcs": "git", "commit_id": "ab1"}}, f" @ git+{URL}@ab1"),
    ],
)
def test_a_project_installs_the_package_from_where_it_came(source, end):
    assert f"astra-red-team[ops]{end}" == requirement("1.2", source)


@pytest.mark.real
def test_the_project_runs_the_installed_code_and_an_upgrade_of_it_again(
    outside, monkeypatch, capsys
):
    (outside / "git").write_text("[user]\nuseConfigOnly = true\n", "utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(outside / "git"))
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    run_command(["init", "new"])
    assert "git          no first commit, commit it yourself: fatal: " in capsys.readouterr().out
    monkeypatch.chdir(outside / "new")

    assert not Path("tasks").exists()
    text = Path("dvc.yaml").read_text("utf-8")
    stages = yaml.safe_load(text)["stages"]
    assert [[], ["plugins", "data/prompts"]] == [
        stages[name].get("deps", []) for name in ("prompts", "validation")
    ]
    # What the command's comment says is of the code, so DVC runs the stage again after a change.
    command, _, digest = stages["prompts"]["cmd"].partition("  # ")
    assert "sh stage.sh prompts" == command
    Path("dvc.yaml").write_text(text.replace(digest, "f" * len(digest)), "utf-8")
    assert f"must be 'cmd: 'sh stage.sh prompts  # {digest}''" in str(drift())
    monkeypatch.setattr("flows.status.changes", dict)
    assert ["the code changed"] == changed_stages()["prompts"]
    Path("requirements.lock").write_text("of an earlier version", "utf-8")
    assert [["requirements.lock"], []] == [[*renew()], [*renew()]]
    assert "entrypoint: flows.training.red_team_training" in Path("prefect.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("full",), "FOLDER must be new or empty, got"),
        (("new", "--prompts", "none.txt"), "--prompts must name a file of prompts, got none.txt"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_made(outside, capsys, arguments, message):
    (outside / "full").mkdir()
    (outside / "full" / "mine.txt").touch()

    assert 2 == run_command(["init", *arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert not (outside / "new").exists()
    assert [outside / "full" / "mine.txt"] == list((outside / "full").iterdir())


def test_a_file_that_is_no_gguf_is_one_line(restored, tmp_path, capsys):
    (tmp_path / "it.gguf").write_bytes(b"PK")

    assert 2 == run_command(["import", str(tmp_path / "it.gguf")])
    told = capsys.readouterr().err
    assert told.startswith("error: a model to import must be a GGUF file, got another kind of file")
