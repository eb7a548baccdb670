"""Stages of workspaces in one process: in order, in turn with others, stopped between two."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from tasks.pipeline.point import main
from tasks.pipeline.workspace import share_cache

DVC_YAML = """\
stages:
  prompts:
    cmd: '"$ASTRA_PYTHON" toy.py'
    deps: [toy.py]
    outs: [out.txt]
  validation:
    cmd: 'test -f out.txt && cp out.txt next.txt'
    deps: [out.txt]
    outs: [next.txt]
"""
WORK = "from pathlib import Path; print('worked', flush=True); Path('out.txt').write_text('done')"


@pytest.fixture
def workspace(dvc_project, monkeypatch):
    """A workspace of a project whose cache it shares."""
    monkeypatch.setenv("ASTRA_PYTHON", sys.executable)
    monkeypatch.setenv("SHELL", "/bin/sh")
    folder = dvc_project / "sweeps/points/1"
    folder.mkdir(parents=True)
    shutil.copytree(dvc_project / ".dvc", folder / ".dvc")
    share_cache(dvc_project, folder)
    (folder / "dvc.yaml").write_text(DVC_YAML, "utf-8")
    (folder / "toy.py").write_text(WORK, "utf-8")
    return folder


def _start(folder, *turns):
    command = [sys.executable, "-m", "tasks.pipeline.point", *turns]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.real
def test_a_second_workspace_restores_what_the_first_has_run(workspace, dvc_project):
    lock = dvc_project / "locks" / "common"
    first = _start(workspace, f"prompts={lock}", "validation")
    assert 0 == first.wait(120)
    other = workspace.with_name("2")
    shutil.copytree(workspace, other, ignore=shutil.ignore_patterns("*.txt", "dvc.lock", "tmp"))
    second = _start(other, f"prompts={lock}", "validation")
    words = second.communicate(timeout=500)[0]

    assert "done" == (workspace / "next.txt").read_text() == (other / "next.txt").read_text()
    assert "worked" in first.stdout.read()
    assert "worked" not in words
    assert 2 == words.count("restored from DVC's cache")
    assert (dvc_project / ".dvc/cache/files").is_dir()


@pytest.mark.real
def test_a_stage_waits_for_its_turn_and_none_begins_once_it_is_stopped(workspace, dvc_project):
    lock = dvc_project / "common"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = _start(workspace, f"prompts={lock}")
        end = time.monotonic() + 120
        held = f"/proc/{waiting.pid}/fd"
        while time.monotonic() < end and str(lock) not in _open_files(held):
            time.sleep(0.1)
        assert str(lock) in _open_files(held)
        waiting.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == waiting.wait(60)

    assert not (workspace / "out.txt").exists()


@pytest.mark.real
def test_a_stage_that_fails_ends_the_point(workspace):
    (workspace / "toy.py").write_text("raise SystemExit(5)", "utf-8")
    failed = _start(workspace, "prompts", "validation")

    assert "cut off with exit status 5" in failed.communicate(timeout=500)[0]
    assert 1 == failed.returncode


def test_an_unknown_stage_is_refused_before_any_runs():
    with pytest.raises(ConfigurationError, match="unknown stage 'prompt'"):
        main(["prompts", "prompt"])


def _open_files(folder):
    return {os.path.realpath(link) for link in Path(folder).iterdir()}
