"""Whatever a person gets wrong: one line that says what and the way out, and nothing is lost.

The table is the other modules of this folder; this one runs it.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import assignments
import commands
import model_folders
import params_files
import params_keys
import params_values
import prompt_files
import pytest
import stage_files
import surroundings
from cases import Case
from small_world import write_world

from astra_core.testing import tiny_language_model
from astra_core.training import dumps
from flows.cli import run_command

ROOT = Path(__file__).parents[2]
TABLE = [
    *params_keys.cases(),
    *params_values.CASES,
    *params_files.CASES,
    *assignments.CASES,
    *prompt_files.CASES,
    *stage_files.CASES,
    *commands.CASES,
    *surroundings.CASES,
    *model_folders.CASES,
]
# All keys of params.yaml pass through the same few lines: one in eight shows it in a moment.
THOROUGH = {case.name for place, case in enumerate(params_keys.cases()) if place % 8}
CASES = [
    pytest.param(case, marks=pytest.mark.real if case.name in THOROUGH else (), id=case.name)
    for case in TABLE
    if not case.alone
]
ALONE = [case for case in TABLE if case.alone]
# Half a minute would be silence; the slowest takes seconds.
PATIENCE_S = 60


def _tasks(arguments: Sequence[str]) -> int:
    from tasks.__main__ import main

    return main(arguments)


def _benchmarks(arguments: Sequence[str]) -> int:
    from benchmarks.__main__ import main

    return main(arguments)


PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    "astra": run_command,
    "tasks": _tasks,
    "astra_core.training.dumps": dumps.main,
    "benchmarks": _benchmarks,
}
MODULES = {"astra": "flows.cli"}


@pytest.fixture(scope="session")
def whole_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands there after a run, tiny, and a model folder of a person's own."""
    from transformers.utils import logging

    # A stage sends the libraries' bars to its log, by descriptors; pytest's streams go around them.
    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("whole")
    for name in ("params.yaml", "dvc.yaml", "prefect.yaml"):
        shutil.copy(ROOT / name, folder)
    write_world(folder)
    tiny_language_model(seed=1).save(folder / "my_model")
    tiny_language_model(seed=2).save(folder / "models" / "attacker")
    for name, content in stage_files.WHOLE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    stage_files.write_tables(folder)
    return folder


@pytest.fixture
def project(whole_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy to break; environment, folder and signals are as they were afterwards."""
    folder = tmp_path / "p"
    shutil.copytree(whole_project, folder)
    monkeypatch.chdir(folder)
    before, terminate = dict(os.environ), signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, terminate)
    os.environ.clear()
    os.environ.update(before)


def _contents(folder: Path) -> dict[str, str]:
    """Every file and what it holds, but for what a command tells of itself below .astra."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in {".astra", ".astra/usable.json"}:
            continue
        if name.startswith((".astra/logs", ".astra/failures")):
            continue
        is_file = not path.is_symlink() and path.is_file()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else "no file"
    return found


def _status(case: Case) -> int:
    program, *arguments = case.command
    try:
        return PROGRAMS[program](arguments)
    except SystemExit as error:
        return int(error.code or 0)


def _require_one_line(case: Case, status: int, errors: str) -> None:
    lines = errors.splitlines()

    assert "Traceback" not in errors
    assert "bug in" not in errors
    assert (case.status, 1) == (status, len(lines)), errors
    assert lines[0].startswith("error: ")
    assert 300 >= len(lines[0])
    assert [] == [words for words in case.says if words not in lines[0]], lines[0]


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line_and_loses_nothing(case, project, monkeypatch, capfd):
    case.arrange(project)
    before = _contents(project)
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    capfd.readouterr()

    status = _status(case)

    _require_one_line(case, status, capfd.readouterr().err)
    assert before == _contents(project)


@pytest.mark.real
@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_a_mistake_ends_a_process_at_once(case, project):
    case.arrange(project)
    before = _contents(project)
    program, *arguments = case.command
    command = [sys.executable, "-m", MODULES.get(program, program), *arguments]

    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), **case.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    _require_one_line(case, done.returncode, done.stderr)
    assert before == _contents(project)


def test_the_table_is_as_large_as_it_says():
    names = [case.name for case in TABLE]

    assert 300 <= len(names)
    assert len(names) == len(set(names))
