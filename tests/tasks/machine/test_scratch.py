import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.machine.scratch import SCRATCH, scratch_folder

KILLED = """\
import os, signal
from tasks.machine.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "attack").write_text("bad")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _left():
    return sorted(SCRATCH.glob("*"))


def test_a_folder_is_there_for_its_block_alone():
    with scratch_folder() as one, scratch_folder() as other:
        assert one != other
        assert {0o700} == {path.stat().st_mode & 0o777 for path in (one, other)}
        (one / "file").touch()
        assert one.is_absolute()

    assert [] == _left()


def test_an_error_leaves_none():
    with pytest.raises(KeyError), scratch_folder():
        raise KeyError

    assert [] == _left()


@pytest.mark.real
def test_the_folder_of_a_killed_process_is_removed_by_the_next():
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert -signal.SIGKILL == done.returncode
    assert 1 == len(_left())
    with scratch_folder() as folder:
        assert [folder] == [path.absolute() for path in _left()]

    assert [] == _left()


def test_the_folder_of_a_reused_number_is_removed_and_that_of_a_neighbour_stays():
    neighbour = psutil.Process(os.getppid())
    SCRATCH.mkdir(parents=True)
    reused = SCRATCH / f"{os.getpid()}-12345-x"
    own = SCRATCH / f"{neighbour.pid}-{neighbour.create_time() * 100:.0f}-x"
    for folder in (reused, own):
        folder.mkdir()
    with scratch_folder():
        assert not reused.exists()
        assert own.exists()


def test_a_file_of_anothers_hand_is_no_trouble():
    Path(SCRATCH).mkdir(parents=True)
    (SCRATCH / "note").touch()
    with scratch_folder() as folder:
        assert folder.is_dir()
