import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from each_row import each_row

from flows.cli import GROUPS, app, project_folder, run_command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with params.yaml, and the environment restored by the caller's own process."""
    for name in ("params.yaml", "prefect.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_every_command(restored, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["--help"])
    told = capsys.readouterr().out
    names = (
        "run",
        "judge-check",
        "check",
        "doctor",
        "status",
        "promote",
        "quickstart",
        "rollback",
        "reevaluate",
        "trial",
        "ui",
    )
    for name in names:
        assert f"\n  {name} " in told


def test_a_command_that_reads_parameters_takes_others_as_if_they_were_in_the_file(
    restored, project, capsys
):
    takes = {
        command.name
        for command in typer.main.get_group(app).commands.values()
        if {"--set", "--preset"} <= {flag for own in command.params for flag in own.opts}
    }
    before = (project / "params.yaml").read_bytes()

    assert {"status", "sweep", "harden", "drift", "reevaluate", "promote", "history"} <= takes
    assert not takes & {"init", "doctor", "migrate", "restore", "deploy"}
    assert 0 == run_command(["params", "seed", "--set", "seed=41"])
    assert "41" in capsys.readouterr().out.splitlines()[0]
    assert 2 == run_command(["history", "--set", "registration.name=x"])
    assert "registration.name is not a known key" in capsys.readouterr().err
    assert 2 == run_command(["drift", "--preset", "brave"])
    assert "--preset must name a file of the folder params" in capsys.readouterr().err
    assert before == (project / "params.yaml").read_bytes()


@pytest.mark.real
def test_help_answers_at_once_for_it_imports_nothing_heavy():
    code = (
        "import sys; from flows.cli import run_command; assert 0 == run_command(['--help']); "
        "print([m for m in sys.modules if m in "
        "('prefect', 'mlflow', 'dvc', 'torch', 'pydantic')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "\n  run " in result.stdout
    assert result.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--set", "training.lrr=1"), "training.lrr is not a known key; did you mean 'lr'?"),
        (("run", "--set", "training"), "--set must read section.key=value, got 'training'"),
        (("bogus",), "No such command 'bogus'. See 'astra --help'."),
        (("run", "--fast"), "No such option: --fast. See 'astra run --help'."),
        (("deploy",), "a Prefect server must answer on this machine, got none"),
        (("ui", "--login"), "Prefect's pages must run, got none of this project; start them"),
        (("ui", "--env"), "Prefect's pages must run, got none of this project; start them"),
        (
            ("reevaluate", "--file", "none.jsonl"),
            "--file must name a file of prompts, got none.jsonl; there is none",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2(restored, project, capfd, arguments, message):
    status = run_command(arguments)
    told = capfd.readouterr().err.splitlines()

    assert 2 == status
    assert [f"error: {message}"] == [line[: len(message) + 7] for line in told]


# What acts and has nothing to list; each says what it did in lines.
ACTS = {
    "check",
    "deploy",
    "export",
    "import",
    "init",
    "migrate",
    "promote",
    "quickstart",
    "reevaluate",
    "render",
    "restore",
    "rollback",
    "serve",
    "serve-jobs",
    "ui",
    "worker",
}


def test_every_command_that_lists_can_do_so_in_json():
    commands = typer.main.get_command(app).commands
    listing = {
        name
        for name, command in commands.items()
        if any("--json" in option.opts for option in command.params)
    }

    assert set(commands) - ACTS == listing


def test_the_help_has_every_command_whole_in_one_group(capsys):
    commands = typer.main.get_command(app).commands
    named = [name for names in GROUPS.values() for name in names]
    assert 0 == run_command(["--help"])
    told = capsys.readouterr().out

    assert sorted(commands) == sorted(named)
    assert "\nBegin:\n  init " in told
    assert "\nMaintain:\n  migrate " in told
    assert told.count("...") == 1  # of the usage line: no sentence is cut


def test_outside_of_a_project_the_way_in_is_named(restored, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    status = run_command(["check"])
    told = capfd.readouterr().err

    assert 2 == status
    assert f"error: astra must run in a folder with params.yaml or below one, got {tmp_path}" in (
        told
    )
    assert 1 == len(told.splitlines())


def test_astra_works_below_the_projects_folder(restored, project, monkeypatch, capfd):
    below = project / "data" / "mine"
    below.mkdir(parents=True)

    assert project == project_folder(below)

    (below / "rows.csv").write_text("text\nhello\n")
    monkeypatch.chdir(below)
    assert 2 == run_command(["validate", "rows.tsv"])
    assert "'data/mine/rows.tsv' (nothing there)" in capfd.readouterr().err
    os.chdir(below)  # the command has left it
    run_command(["validate", "rows.csv"])
    assert "nothing there" not in capfd.readouterr().err


def test_the_help_of_a_command_needs_no_project(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["findings", "--help"])
    assert "Usage: astra findings" in capfd.readouterr().out
    assert 2 == run_command(["findings"])


@each_row("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_output_that_nobody_takes_is_one_line_and_status_2(project, monkeypatch, arguments):
    told = io.StringIO()
    monkeypatch.setattr("sys.stderr", told)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert 2 == run_command(arguments)

    assert told.getvalue().startswith("error: the output must be taken to its end, got: No space")
    assert 1 == told.getvalue().count("\n")


@pytest.mark.real
def test_streams_that_the_parent_closed_are_no_bug(project):
    program = [sys.executable, "-m", "flows.cli", "--version"]
    closing = ["bash", "-c", '"$@" <&- >&- 2>err', "bash", *program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    assert 0 == subprocess.run(closing, env=environment, check=False).returncode
    assert "" == Path("err").read_text()


@pytest.mark.real
@each_row(
    ("kilobytes", "program"),
    [(200_000, "flows.cli run"), (900_000, "flows.cli run"), (200_000, "tasks training")],
)
def test_too_little_memory_is_one_line_before_compiled_code_aborts(project, kilobytes, program):
    limited = ["bash", "-c", f'ulimit -v {kilobytes}; exec "$0" -m {program}', sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(limited, env=environment, check=False, capture_output=True, text=True)

    assert (2, "") == (ended.returncode, ended.stdout)
    assert ended.stderr.startswith("error: a process must have at least 1500 MB of memory, got a")
    assert ended.stderr.endswith("raise 'ulimit -v'\n")


def test_version_is_reported(capsys):
    assert 0 == run_command(["--version"])
    assert capsys.readouterr().out.startswith("astra 0.")


def test_without_a_command_the_help_is_shown(capsys):
    assert 2 == run_command([])
    assert "\nBegin:\n" in capsys.readouterr().err


def test_a_stage_error_is_not_told_twice(monkeypatch, capsys):
    from flows import cli
    from flows.errors import StageError

    assert 1 == cli._explain(StageError("its own line"))
    assert (
        "the line above says why; the same command resumes from here\n" == capsys.readouterr().err
    )


def test_a_bug_keeps_its_trace():
    from flows import cli

    with pytest.raises(KeyError):
        cli._explain(KeyError("bug"))
