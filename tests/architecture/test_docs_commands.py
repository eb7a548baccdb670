"""Every command in the documentation is one that its program knows."""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from each_row import each_row
from pages import ROOT, commands, known_variables

from flows.commands.running import BEFORE
from flows.settings import change_params
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import stages

# Read-only and quick, so they run here.
RUN_HERE = ("astra --help", "astra check", "astra doctor", "python -m tasks --list")


@pytest.mark.real
@each_row("command", RUN_HERE)
def test_a_quick_command_runs(command):
    words = shlex.split(command)
    module = {"astra": ["-m", "flows.cli"], "python": []}[words[0]]
    done = subprocess.run(
        [sys.executable, *module, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.strip()


@pytest.mark.real  # imports the programs, for seconds
@each_row("command", commands)
def test_a_command_of_the_pages_is_one_its_program_knows(command):
    program, *words = shlex.split(command)
    parsers = {
        "make": _parse_make,
        "astra": _parse_astra,
        "dvc": _parse_dvc,
        "mlflow": _parse_mlflow,
        "prefect": _parse_prefect,
        "python": _parse_python,
        "torchrun": _parse_torchrun,
        "accelerate": _parse_accelerate,
        "cp": _parse_cp,
        "source": lambda words: words == [".venv/bin/activate"],
        "eval": lambda words: _parse_astra(shlex.split(words[0][len("$(astra ") : -1])),
        "export": lambda words: words[0].partition("=")[0] in known_variables(),
    }
    assert program in parsers
    assert parsers[program](words) is not False


def _parse_cp(words: list[str]) -> bool:
    undo = [str(BEFORE), "params.yaml"]
    return words == undo or (words[0] == "-r" and Path(words[1]) in _products())


def _products() -> list[Path]:
    """What a person may copy, to begin from it."""
    return [path for stage in stages().values() for path in stage.products]


def _parse_make(words: list[str]) -> bool:
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return {word for word in words if "=" not in word} <= set(targets)


def _parse_astra(words: list[str]) -> None:
    import typer

    from flows.cli import app

    group: Any = typer.main.get_command(app)
    if words[0].startswith("--"):
        assert {words[0]} <= {"--help", "--version", "--install-completion"}
        return
    assert words[0] in group.commands
    group.commands[words[0]].make_context(words[0], words[1:])


def _parse_dvc(words: list[str]) -> None:
    from dvc.cli.parser import get_main_parser

    _exits_not(get_main_parser(), words)
    if words[0] == "repro":
        assert {word for word in words[1:] if not word.startswith("-")} <= set(STAGE_NAMES)


def _parse_mlflow(words: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about type hints of its own
        import click
        from mlflow.cli import cli

    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def _parse_prefect(words: list[str]) -> bool:
    """Its parser takes seconds to import; what is ours in the command is the deployment."""
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))["deployments"]
    names = set()
    for entry in declared:
        file, function = entry["entrypoint"].split(":")
        text = (ROOT / file).read_text("utf-8")
        (flow,) = re.findall(rf'@flow\(name="([^"]+)"[^)]*\)\ndef {function}\(', text)
        names.add(f"{flow}/{entry['name']}")
    return words[0] == "deployment" and bool(names & {*words})


def _parse_python(words: list[str]) -> None:
    if words[:2] == ["-m", "tasks"]:
        from tasks.__main__ import _parser

        asked = _exits_not(_parser(), words[2:])
        assert asked.stage is None or asked.stage in STAGE_NAMES
    elif words[:2] == ["-m", "pytest"]:
        assert (ROOT / words[-1]).is_file()
    elif words[:2] == ["-m", "benchmarks"]:
        from benchmarks.__main__ import BENCHMARKS, COMMANDS

        assert {*words[2:3]} <= {*BENCHMARKS, *COMMANDS}
    elif words[0].endswith(".py"):
        assert (ROOT / words[0]).is_file()
    else:
        place = ROOT / words[1].replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def _parse_torchrun(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    asked = _exits_not(get_args_parser(), words)
    assert asked.module
    _parse_python(["-m", asked.training_script, *asked.training_script_args])


def _parse_accelerate(words: list[str]) -> None:
    from accelerate.commands.launch import launch_command_parser

    asked = _exits_not(launch_command_parser(), words[1:])
    assert words[0] == "launch"
    assert asked.module
    _parse_python(["-m", asked.training_script, *asked.training_script_args])


def _exits_not(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    try:
        return parser.parse_args(words)
    except SystemExit:
        pytest.fail(f"{parser.prog} does not understand {words}")


@pytest.mark.real
@each_row("command", lambda: [c for c in commands() if c.startswith("astra run --set")])
def test_an_assignment_of_the_pages_makes_usable_params(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    for name in ("my/target", "my/attacker"):
        Path(name).mkdir(parents=True)
    for name in ("my/prompts.jsonl", "my/target/config.json", "my/attacker/config.json"):
        Path(name).write_text("{}\n", "utf-8")
    words = shlex.split(command)
    assignments = [after for word, after in pairwise(words) if word == "--set"]

    changed = [line.partition(":")[0] for line in change_params(assignments)]
    assert [text.partition("=")[0] for text in assignments] == changed
