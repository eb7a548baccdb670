import json
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from astra_core.errors import DataError
from tasks.pipeline.restoration import BEFORE, put_back

pytestmark = pytest.mark.real

STAGE = """\
stages:
  write:
    cmd: mkdir -p out && cp params.yaml out/one
    params:
    - value
    outs:
    - out
"""
FILES = (Path("params.yaml"), Path("dvc.lock"))


def _run(value):
    Path("params.yaml").write_text(f"value: {value}\n", encoding="utf-8")
    with Repo(".") as repo:
        repo.reproduce()
    return _files()


def _files():
    return {file: file.read_text(encoding="utf-8") for file in FILES}


def _made():
    return Path("out/one").read_text(encoding="utf-8")


@pytest.fixture
def runs(dvc_project):
    """The files of a first and a second run."""
    Path("dvc.yaml").write_text(STAGE, encoding="utf-8")
    return _run(1), _run(2)


def test_results_come_back_and_what_was_there_is_kept(runs):
    first, second = runs
    kept = put_back(first)

    assert ("value: 1\n", first) == (_made(), _files())
    assert second == {file: (kept / file).read_text(encoding="utf-8") for file in FILES}
    # Again, as after a kill: nothing else is to be kept.
    Path("out/one").unlink()
    assert put_back(first) is None
    assert "value: 1\n" == _made()
    put_back(second)
    assert 2 == len(list(BEFORE.iterdir()))


def test_without_the_result_everything_stays(runs):
    first, second = runs
    Path("dvc.lock").unlink()
    del second[FILES[1]]
    listed = next(line for line in first[FILES[1]].splitlines() if ".dir" in line)
    digest = listed.split()[-1]
    Path(".dvc/cache/files/md5", digest[:2], digest[2:]).unlink()
    with pytest.raises(DataError, match=r"must have every result, got: .*then 'dvc push' send"):
        put_back(first)

    assert ("value: 2\n", second) == (_made(), {FILES[0]: FILES[0].read_text(encoding="utf-8")})
    assert not FILES[1].exists()


def test_a_remote_that_cannot_be_asked_is_one_line(runs):
    first, second = runs
    remote = (
        "[core]\n    no_scm = true\n    remote = far\n['remote \"far\"']\n    url = s3://far/away\n"
    )
    Path(".dvc/config").write_text(remote, encoding="utf-8")
    with pytest.raises(DataError, match=r"able to read the project, got: s3 .* requires 'dvc-s3'"):
        put_back(first)

    assert ("value: 2\n", second) == (_made(), _files())


def test_what_nobody_has_a_copy_of_is_not_replaced(runs):
    first, second = runs
    Path("out/one").unlink()
    Path("out/one").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"must have a copy of what it replaces, got .*out/one"):
        put_back(first)

    assert ("mine", second) == (_made(), _files())


def test_a_run_at_work_is_not_disturbed(runs):
    first, second = runs
    with subprocess.Popen(["sleep", "60"]) as other:
        info = {"pid": other.pid, "cmd": "dvc repro"}
        holders = {"write": {str(Path("out").absolute()): info}, "read": {}}
        Path(".dvc/tmp/rwlock").write_text(json.dumps(holders), encoding="utf-8")
        try:
            with pytest.raises(
                DataError, match=r"no run may be at work here, got \(PID \d+\): dvc"
            ):
                put_back(first)
        finally:
            other.kill()

    assert ("value: 2\n", second) == (_made(), _files())
