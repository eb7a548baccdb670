import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.__main__ import _told_end, exam_of, main
from tasks.params.schema import Params

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """An empty project that a stage may run in, and the environment as it was afterwards."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_OFFLINE", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def run_main(monkeypatch):
    """``main`` with the signal's handler restored afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    yield main
    signal.signal(signal.SIGTERM, before)


def test_an_unknown_stage_is_one_line_and_no_file(run_main, capfd):
    assert 2 == run_main(["trainig"])
    err = capfd.readouterr().err
    assert 1 == len(err.splitlines())
    assert "did you mean 'training'" in err
    assert not Path(".astra").exists()


def test_memory_that_runs_out_before_a_stage_is_one_line(run_main, capfd, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(os.environ, "setdefault", fail)
    assert 2 == run_main(["--check"])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: this step must have more memory, got none")


def test_nothing_asked_shows_the_usage(run_main, capfd):
    assert 2 == run_main([])
    assert capfd.readouterr().err.startswith("usage: python -m tasks")


def test_the_list_has_a_line_for_each_stage(run_main, capfd):
    assert 0 == run_main(["--list"])
    assert 7 == len(capfd.readouterr().out.splitlines())


def test_render_then_check_agree(run_main, capfd):
    assert 0 == run_main(["--render"])
    assert 0 == run_main(["--render", "--check"])
    Path("dvc.yaml").write_text("stages: {}\n")
    assert 2 == run_main(["--render", "--check"])
    assert "run 'astra render'" in capfd.readouterr().err


def test_the_doctor_exits_with_a_problem(run_main, capfd):
    # An empty folder has no lock file, so there is something to fix.
    assert 2 == run_main(["--doctor"])
    assert "problem  requirements.lock: must exist" in capfd.readouterr().out
    assert 2 == run_main(["--doctor", "--json"])
    found = {each["subject"]: each for each in json.loads(capfd.readouterr().out)}
    assert "git restore requirements.lock" == found["requirements.lock"]["advice"]
    assert found["git"]["ok"]


@pytest.mark.real
def test_the_module_is_a_command(tmp_path):
    command = [sys.executable, "-m", "tasks", "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert done.stderr.startswith("error: unknown stage 'nothing'")


@pytest.mark.real
def test_a_stage_that_is_aborted_for_lack_of_memory_is_told(capfd):
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -ABRT $$"], os.environ)

    assert 128 + signal.SIGABRT == _told_end(child, "training")
    (line,) = capfd.readouterr().err.splitlines()
    words = "error: stage training was ended by SIGABRT, most likely for lack of memory, got"
    assert line.startswith(words)
    assert line.endswith("; raise 'ulimit -v'")
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -TERM $$"], os.environ)
    assert (143, "") == (_told_end(child, "training"), capfd.readouterr().err)


@pytest.mark.real
def test_a_stage_under_a_limit_of_memory_ends_as_without(tmp_path):
    limited = ["bash", "-c", 'ulimit -v 100000000; exec "$0" -m tasks validation', sys.executable]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert "stage validation must find" in done.stderr


def _asking(**prompts):
    return Params.read({"prompts": prompts}, where="")


def test_the_rows_of_a_file_are_counted(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"why {number}?\n" for number in range(50)))

    found = exam_of(_asking(source="file", path=str(path)))

    assert found is not None
    assert 15 == found.num_test
    hub = {"dataset": "a/b", "revision": "0" * 40}
    assert exam_of(_asking(source="hub", **hub)) is None
