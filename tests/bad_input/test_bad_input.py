"""Whatever a person gets wrong: one line that says what and the way out, and nothing is lost.

The table is the other modules of this folder; this one runs it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
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
from cases import CHECK, Case
from each_row import each_row
from small_world import write_world

from astra_core.errors import AstraError, ConfigurationError
from astra_parts import dumps
from astra_parts.testing import tiny_language_model
from flows.cli import run_command
from tasks.params.checks import check_params
from tasks.params.schema import Params, read_params

ROOT = Path(__file__).parents[2]
TABLES = {
    "values": params_values.CASES,
    "params.yaml": params_files.CASES,
    "--set": assignments.CASES,
    "prompts": prompt_files.CASES,
    "stage files": stage_files.CASES,
    "command lines": commands.CASES,
    "surroundings": surroundings.CASES,
    "models": model_folders.CASES,
}
# What the check of params.yaml finds in memory, before any stage; the others call a whole command.
CHECKED = ("values", "params.yaml")
ALONE = [
    pytest.param(case, id=case.name, marks=[pytest.mark.wide] if case.wide else [])
    for rows in TABLES.values()
    for case in rows
    if case.alone
]
FILES = ("params.yaml", "dvc.yaml", "prefect.yaml")
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
    "astra_parts.dumps": dumps.main,
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
    for name in FILES:
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
def project(whole_project: Path, tmp_path: Path, restored: None) -> Path:
    """A copy to break."""
    folder = Path(shutil.copytree(whole_project, tmp_path / "p"))
    os.chdir(folder)
    return folder


def _contents(folder: Path) -> dict[str, str]:
    """Every file and what it holds, but for what a command tells of itself below .astra."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in {".astra", ".astra/usable.json", ".astra/run.lock"}:
            continue
        if name.startswith((".astra/logs", ".astra/failures")):
            continue
        is_file = not path.is_symlink() and path.is_file()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else "no file"
    return found


def _is_checked(case: Case) -> bool:
    """Whether it is told before any stage begins, by a function that is called here as well."""
    return case.command == CHECK and not case.alone


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
    _require_words(lines[0], case.says)


def _require_words(line: str, words: Sequence[str]) -> None:
    assert "\n" not in line
    assert [] == [each for each in words if each not in line], line


def _says_so(case: Case, line: str) -> None:
    assert [] == [words for words in case.says if words not in line], line
    assert "\n" not in line


@pytest.mark.parametrize("kind", params_keys.KINDS)
def test_a_mistake_in_any_key_is_told_with_its_rule(kind):
    @each_row("mistake", [mistake for mistake in params_keys.mistakes() if mistake.kind == kind])
    def told(mistake):
        with pytest.raises(ConfigurationError) as caught:
            Params.read(mistake.record, where="")

        _require_words(str(caught.value), mistake.says)

    told()


@pytest.mark.parametrize("table", CHECKED)
def test_a_mistake_is_found_before_any_stage(table, tmp_path, restored):
    @each_row("case", [case for case in TABLES[table] if _is_checked(case)])
    def told(case, tmp_path):
        os.chdir(tmp_path)
        for name in FILES:
            shutil.copy(ROOT / name, tmp_path)
        for name in ("data", "my_model"):
            (tmp_path / name).mkdir()
        case.arrange(tmp_path)

        with pytest.raises(AstraError) as caught:
            check_params(read_params())

        _require_words(str(caught.value), case.says)

    told(tmp_path=tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("table", TABLES)
def test_a_mistake_is_one_line_and_loses_nothing(table, whole_project, tmp_path, restored, capfd):
    cases = [case for case in TABLES[table] if not case.alone]
    first = [case for case in cases if _is_checked(case)][:1]

    @each_row("case", first + [case for case in cases if not _is_checked(case)])
    def told(case, tmp_path, monkeypatch):
        os.chdir(shutil.copytree(whole_project, tmp_path / "p"))
        case.arrange(Path.cwd())
        before = _contents(Path.cwd())
        for name, value in case.environment.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()

        status = _status(case)

        _require_one_line(case, status, capfd.readouterr().err)
        assert before == _contents(Path.cwd())

    with pytest.MonkeyPatch.context() as patch:
        told(tmp_path=tmp_path, monkeypatch=patch)


@pytest.mark.real
@pytest.mark.parametrize("case", ALONE)
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
