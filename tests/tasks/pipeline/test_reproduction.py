"""DVC in a process of its own: what it runs, what it tells, and that it dies with its parent."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from astra_core.errors import ConfigurationError
from tasks.pipeline.failures import read_failure
from tasks.pipeline.reproduction import _explain, changes, is_current

DVC_YAML = """\
stages:
  toy:
    cmd: '"$ASTRA_PYTHON" toy.py'
    deps: [toy.py]
    outs: [out.txt]
  next:
    cmd: 'true'
    deps: [out.txt]
"""
WORK = "from pathlib import Path; print('worked'); Path('out.txt').write_text('done')"
SLOW = """\
import time
from pathlib import Path
with Path("begun").open("a") as file:
    file.write("begun\\n")
while not Path("go").exists():
    time.sleep(0.05)
Path("out.txt").write_text("done")
"""
SLEEP = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(300)"


@pytest.fixture
def project(dvc_project, monkeypatch):
    monkeypatch.setenv("ASTRA_PYTHON", sys.executable)
    monkeypatch.setenv("SHELL", "/bin/sh")
    (dvc_project / "dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    (dvc_project / "toy.py").write_text(WORK, encoding="utf-8")
    return dvc_project


def _reproduce(*arguments):
    command = [sys.executable, "-m", "tasks.pipeline.reproduction", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.real
def test_a_stage_that_ran_is_current_and_its_words_are_all_one_sees(project):
    assert not is_current("toy")
    result = _reproduce("toy")

    assert (0, "worked\n", "") == (result.returncode, result.stdout, result.stderr)
    assert is_current("toy")
    assert ["next"] == list(changes())


def test_a_fresh_stage_is_not_made_yet(project):
    assert ["not made yet"] == changes()["toy"]


@pytest.mark.real
def test_what_dvc_remembers_is_restored_with_a_word(project):
    _reproduce("toy")
    Path("out.txt").unlink()
    result = _reproduce("toy")

    assert result.stdout.startswith("toy          restored from DVC's cache (")
    assert "done" == Path("out.txt").read_text()


@pytest.mark.wide
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"damaged")])
def test_a_result_whose_kept_copy_is_gone_or_damaged_is_made_again(project, damage):
    _reproduce("toy")
    Path("out.txt").unlink()
    for kept in Path(".dvc/cache/files/md5").glob("*/*"):
        kept.chmod(0o600)
        damage(kept)
    result = _reproduce("toy")

    assert (0, "worked\n", "") == (result.returncode, result.stdout, result.stderr)
    assert "done" == Path("out.txt").read_text()
    assert is_current("toy")


@pytest.mark.real
def test_a_kept_copy_that_was_cut_while_nobody_might_write_to_it_is_made_again(project):
    (project / "dvc.yaml").write_text(
        DVC_YAML.replace("[out.txt]\n  next", "[out.txt, more]\n  next")
    )
    (project / "toy.py").write_text(
        f"{WORK}; Path('more').mkdir(); Path('more/a').write_text('also')"
    )
    _reproduce("toy")
    for cut in ("out.txt", "more/a"):
        copy = Path(".dvc/cache/files/md5").joinpath(*_places(Path(cut)))
        for path in (Path("out.txt"), Path("more/a")):
            path.unlink()
        mode = copy.stat().st_mode
        copy.chmod(0o600)
        copy.write_bytes(b"")
        copy.chmod(mode)
        result = _reproduce("toy")

        assert (0, "worked\n") == (result.returncode, result.stdout)
        assert f"toy: DVC's copy of {cut} is damaged; it is made again\n" == result.stderr
        assert ("done", "also") == (Path("out.txt").read_text(), Path("more/a").read_text())
        assert is_current("toy")


def _places(path):
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    return md5[:2], md5[2:]


@pytest.mark.real
def test_a_missing_input_is_reported_by_one_line_and_not_tried_again(project):
    result = _reproduce("next")
    failure = read_failure("next")

    assert 1 == result.returncode
    assert 1 == len(result.stderr.splitlines())
    assert "out.txt" in result.stderr
    assert not failure.retryable


@pytest.mark.real
def test_a_stage_that_says_nothing_is_a_crash_that_may_pass(project):
    Path("toy.py").write_text("raise SystemExit(9)", encoding="utf-8")
    result = _reproduce("toy")
    failure = read_failure("toy")

    assert 1 == result.returncode
    assert ("StageCrash", True) == (failure.error, failure.retryable)
    assert "exit status 9" in failure.message


@pytest.mark.real
def test_another_dvc_at_work_may_pass(project, capfd):
    from dvc.repo import Repo

    with Repo(".") as repo, repo.lock:
        # DVC's words advise to remove the lock, which somebody holds.
        told = rf"here, got \(PID {os.getpid()}\): DVC; try"
        with pytest.raises(ConfigurationError, match=told) as refused:
            changes()
        # The stage's own process waits for it.
        assert not is_current("toy")
        # As where a file that was cut short cannot be set aside meanwhile.
        assert 1 == _explain(refused.value, "toy")
    failure, complaint = read_failure("toy"), capfd.readouterr().err

    assert ("LockError", True) == (failure.error, failure.retryable)
    assert failure.message.endswith(f"at work here, got (PID {os.getpid()}): DVC")
    assert 1 == len(complaint.splitlines())
    assert "remove" not in complaint


@pytest.mark.real
def test_of_two_runs_at_once_the_second_waits_and_takes_what_the_first_made(project):
    Path("toy.py").write_text(SLOW, encoding="utf-8")
    command = [sys.executable, "-m", "tasks.pipeline.reproduction", "toy"]
    first = subprocess.Popen(command)
    _wait_for(lambda: Path("begun").exists())
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told = second.stdout.readline()
    Path("go").touch()
    second.communicate(timeout=240)

    assert told.startswith(f"toy          waits for another run: (PID {first.pid})")
    assert [0, 0] == [first.wait(240), second.returncode]
    assert "begun\n" == Path("begun").read_text()
    assert "done" == Path("out.txt").read_text()


@pytest.mark.real
def test_a_stage_that_ends_by_the_signal_that_stops_the_run_is_no_crash(project):
    Path("toy.py").write_text(SLOW, encoding="utf-8")
    command = [sys.executable, "-m", "tasks.pipeline.reproduction", "toy"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    _wait_for(lambda: Path("begun").exists())
    os.killpg(run.pid, signal.SIGTERM)

    assert (b"", 1) == (run.communicate(timeout=240)[1], run.returncode)
    assert read_failure("toy") is None


@pytest.mark.real
def test_a_run_that_waits_ends_when_it_is_asked_to(project):
    from dvc.repo import Repo

    command = [sys.executable, "-m", "tasks.pipeline.reproduction", "toy"]
    with Repo(".") as repo, repo.lock:
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert waiting.stdout.readline().endswith(
            f"another run: (PID {os.getpid()}): DVC\n".encode()
        )
        waiting.terminate()
        _, complaint = waiting.communicate(timeout=240)

    assert (b"", 1) == (complaint, waiting.returncode)


def test_an_unknown_stage_is_a_mistake(project):
    with pytest.raises(ConfigurationError, match="DVC must know stage 'nope'"):
        is_current("nope")


def test_outside_of_a_dvc_project_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="see 'astra doctor'"):
        changes()


@pytest.mark.real
def test_a_stage_ends_with_the_flow_that_was_killed(project):
    Path("toy.py").write_text(SLEEP, encoding="utf-8")
    code = (
        "import subprocess, sys; "
        "subprocess.Popen([sys.executable, '-m', 'tasks.pipeline.reproduction', 'toy'], "
        "start_new_session=True).wait()"
    )
    flow = subprocess.Popen([sys.executable, "-c", code])
    _wait_for(lambda: Path("pid").exists() and Path("pid").read_text())
    pid = int(Path("pid").read_text())
    flow.kill()
    flow.wait()
    _wait_for(lambda: not _runs(pid))

    assert not _runs(pid)


def _runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _wait_for(happened, timeout_s=240.0):
    end = time.monotonic() + timeout_s
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
