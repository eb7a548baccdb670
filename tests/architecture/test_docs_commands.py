"""Every command in the documentation is run somewhere, and is one that its program knows."""

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
from pages import ROOT, commands, fenced_commands, known_variables

from flows.settings import change_params
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import stages

# Read-only and quick, so they run here; and where each of the others does run. What belongs to
# another tool is held to that tool's own parser only.
RUN_HERE = ("astra --help", "astra check", "astra doctor", "python -m tasks --list")
SECONDS = {"astra check", "astra doctor"}
RUN_ELSEWHERE = {
    "make setup": (".ci/run", "make setup"),
    "make check": (".ci/run", "make check"),
    "make test-all": (".ci/run", "make test-all"),
    "make test-routes": (".ci/run", "make test-routes"),
    "make test": (".ci/run", "make test"),
    "make services": (".ci/run", "make services"),
    "make lock": ("Makefile", "pip compile"),
    "make run": ("Makefile", "flows.cli run"),
    "make ui": ("Makefile", "flows.cli ui"),
    "make deploy": ("Makefile", "flows.cli deploy"),
    "astra run": ("tests/flows", "red_team_training"),
    "astra status": ("tests/flows", "status_lines"),
    "astra promote": ("tests/tasks/promotion/test_decision.py", "promote_attacker"),
    "astra rollback": ("tests/tasks/promotion/test_rollback.py", "rollback"),
    "astra calibrate": ("tests/flows/commands/test_calibration.py", "calibrate"),
    "astra init": ("tests/flows/commands/test_beginning.py", "init"),
    "astra drift": ("tests/flows/runs/test_data_drift.py", '"drift"'),
    "astra gc": ("tests/flows/commands/test_caring.py", "gc"),
    "astra resume": ("tests/flows/commands/test_running.py", "resume"),
    "astra validate": ("tests/flows/commands/test_validating.py", "validate"),
    "astra history": ("tests/flows/commands/test_chronicle.py", "history"),
    "astra champion": ("tests/flows/commands/test_chronicle.py", "champion"),
    "astra lineage": ("tests/flows/commands/test_chronicle.py", "lineage"),
    "astra report": ("tests/flows/commands/test_report.py", "report"),
    "astra serve": ("tests/flows/commands/test_model_serving.py", '"serve"'),
    "astra serve-jobs": ("tests/flows/commands/test_model_serving.py", '"serve-jobs"'),
    "astra export": ("tests/tasks/tracking/registry/test_exports.py", '"export"'),
    "astra plots": ("tests/flows/commands/test_report.py", "plots"),
    "astra compare": ("tests/flows/commands/test_report.py", "compare"),
    "astra trial": ("tests/flows/commands/test_trial.py", "flows.cli"),
    "astra sweep": ("tests/flows/sweeps/test_command.py", "sweep"),
    "astra tune-lr": ("tests/flows/commands/test_tuning.py", "tune-lr"),
    "astra reevaluate": ("tests/flows", "champion_reevaluation"),
    "astra examples": ("tests/end_to_end/test_pipeline.py", "flows.cli"),
    "astra ui": ("tests/flows", "prefect_server"),
    "astra deploy": ("tests/flows", "deploy"),
    "dvc repro": ("tests/end_to_end/test_pipeline.py", "repro"),
    "dvc exp": ("tests/end_to_end/test_dvc_habits.py", '"exp"'),
    "dvc remote": ("tests/end_to_end/test_dvc_habits.py", '"remote"'),
    "dvc import-url": ("tests/end_to_end/test_dvc_habits.py", '"import-url"'),
    "dvc push": ("tests/end_to_end/test_dvc_habits.py", '"push"'),
    "dvc pull": ("tests/end_to_end/test_dvc_habits.py", '"pull"'),
    "torchrun": ("tests/tasks/machine/test_processes.py", "torchrun"),
    "accelerate launch": ("tests/tasks/machine/test_processes.py", "accelerate"),
}
# What a person may copy, to begin from it.
PRODUCTS = [path for stage in stages().values() for path in stage.products]
PARSED_ONLY = (
    "dvc params",
    "dvc metrics",
    "prefect deployment",
)


@each_row("command", fenced_commands())
def test_a_command_of_the_pages_is_run_somewhere(command):
    if command.startswith(("source ", "export ", "eval ", "cp ", *RUN_HERE, *PARSED_ONLY)):
        return
    known = [name for name in RUN_ELSEWHERE if f"{command} ".startswith(f"{name} ")]
    assert known, f"'{command}' must be run by a test; name it in RUN_ELSEWHERE"

    place, words = RUN_ELSEWHERE[known[0]]
    files = [ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("test_*.py")
    assert any(words in file.read_text("utf-8") for file in files)


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.real] if c in SECONDS else []) for c in RUN_HERE],
)
def test_a_quick_command_runs(command):
    words = shlex.split(command)
    module = {"astra": ["-m", "flows.cli"], "python": []}[words[0]]
    done = subprocess.run(
        [sys.executable, *module, *words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.strip()


@each_row("command", commands())
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
        "cp": lambda words: words[0] == "-r" and Path(words[1]) in PRODUCTS,
        "source": lambda words: words == [".venv/bin/activate"],
        "eval": lambda words: _parse_astra(shlex.split(words[0][len("$(astra ") : -1])),
        "export": lambda words: words[0].partition("=")[0] in known_variables(),
    }
    assert program in parsers
    assert parsers[program](words) is not False


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


@each_row("command", [c for c in commands() if c.startswith("astra run --set")])
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
