"""Nobody but the owner reads what a run leaves, whatever the umask of the shell that starts it."""

import os
import stat
import subprocess
import sys

import pytest

from tasks.machine.privacy import FOLDERS, keep_private, open_to_others


@pytest.fixture(autouse=True)
def open_umask():
    """What a user's shell usually has; put back, as the umask is the whole process's."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def used(tmp_path):
    """A project in which a run left its folders open, as another program or version may."""
    for name in FOLDERS:
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "text").write_text("an attack")
    for name in ("mlflow.db", "mlflow.db-wal", "params.yaml"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_what_is_open_is_found_and_closed(used):
    assert {*FOLDERS, "mlflow.db", "mlflow.db-wal"} == {p.name for p in open_to_others(used)}
    keep_private(used)

    assert [] == list(open_to_others(used))
    assert {0o700} == {_mode(used / name) for name in FOLDERS}
    assert {0o600} == {_mode(used / name) for name in ("mlflow.db", "mlflow.db-wal")}
    assert 0o644 == _mode(used / "params.yaml")


def test_an_empty_folder_stays_empty(tmp_path):
    keep_private(tmp_path)

    assert [] == list(tmp_path.iterdir())


@pytest.mark.real
def test_what_is_written_from_then_on_is_closed_also_by_children(tmp_path):
    keep_private(tmp_path)
    (tmp_path / "own").write_text("x")
    code = "import os; os.mkdir('folder'); open('folder/child', 'w').close()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)

    assert 0o600 == _mode(tmp_path / "own") == _mode(tmp_path / "folder" / "child")
    assert 0o700 == _mode(tmp_path / "folder")


@pytest.mark.real
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "tasks", "--list"),
        ("-m", "tasks", "nonsense"),
        ("-m", "tasks.pipeline.reproduction", "nonsense"),
        ("-m", "flows.cli", "examples"),
    ],
)
def test_every_command_closes_what_it_finds_open(used, command):
    subprocess.run(
        [sys.executable, *command], cwd=used, check=False, capture_output=True, timeout=100
    )

    assert [] == list(open_to_others(used))
