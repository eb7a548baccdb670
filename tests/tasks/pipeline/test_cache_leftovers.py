import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from astra_core.errors import DataError
from tasks.pipeline.cache_leftovers import CACHE, cache_leftovers

OLD_S = 30 * 86_400


@pytest.fixture
def project(dvc_project):
    """A DVC project without git."""
    return dvc_project


def keep(digest, content=b"x" * 1000, *, days=30.0):
    """A file of the cache under any digest."""
    path = CACHE / "files/md5" / digest[:2] / digest[2:]
    return written(path, content, days=days)


def written(path, content, *, days=30.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    at = time.time() - days * 86_400
    os.utime(path, (at, at))
    return path


def digest(number):
    return f"{number:032x}"


def lock(*digests):
    outs = "".join(f"\n    - path: {name}\n      md5: {name}" for name in digests)
    return f"schema: '2.0'\nstages:\n  toy:\n    outs:{outs}\n"


def names(found):
    return {path.parent.name + path.name for path in found.objects}


def test_what_a_lock_names_stays_with_the_files_of_its_folders(project):
    for number in range(5):
        keep(digest(number))
    members = [{"md5": digest(1), "relpath": "a"}, {"md5": digest(2), "relpath": "b"}]
    keep(f"{digest(9)}.dir", json.dumps(members).encode())
    Path("dvc.lock").write_text(lock(digest(0), f"{digest(9)}.dir"), "utf-8")
    Path("my").mkdir()
    Path("my/prompts.txt.dvc").write_text(f"outs:\n- md5: {digest(3)}\n  path: x\n", "utf-8")
    found = cache_leftovers(min_days=14.0)

    assert {digest(4)} == names(found)
    assert 1000 == found.num_bytes
    assert set() == names(cache_leftovers({digest(4)}, min_days=14.0))
    found.remove()
    assert not (CACHE / "files/md5" / digest(4)[:2] / digest(4)[2:]).exists()
    assert set() == names(cache_leftovers(min_days=14.0))
    Path("dvc.lock").unlink()
    assert 4 == len(names(cache_leftovers(min_days=14.0)))


def test_a_point_of_a_sweep_keeps_its_results(project):
    keep(digest(1))
    point = Path("sweeps/points/abc/dvc.lock")
    point.parent.mkdir(parents=True)
    point.write_text(lock(digest(1)), "utf-8")

    assert set() == names(cache_leftovers(min_days=14.0))


def test_what_was_made_lately_stays(project):
    keep(digest(1), days=13.0)
    keep(digest(2), days=15.0)

    assert {digest(2)} == names(cache_leftovers(min_days=14.0))
    assert {digest(1), digest(2)} == names(cache_leftovers(min_days=1.0))


def test_what_dvc_remembers_goes_with_its_results(project):
    keep(digest(1))
    keep(digest(2))
    memory = CACHE / "runs/ab/abc"
    text = "deps:\n- path: a\n  md5: {}\nouts:\n- path: b\n  md5: {}\n"
    old = written(memory / "old", text.format(digest(2), digest(1)).encode())
    recent = written(memory / "recent", text.format(digest(9), digest(2)).encode(), days=1.0)
    found = cache_leftovers(min_days=14.0)

    assert {digest(1)} == names(found)
    assert (old,) == found.entries
    found.remove()
    assert [recent] == list(memory.iterdir())


def test_every_commit_of_every_branch_keeps_its_results(project):
    def git(*arguments):
        person = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
        subprocess.run(["git", *person, *arguments], check=True, capture_output=True)

    for number in range(4):
        keep(digest(number))
    (project / ".dvc/config.local").unlink(missing_ok=True)
    git("init", "-q", "-b", "main")
    for number, branch in ((0, "main"), (1, "main"), (2, "other")):
        if branch != "main":
            git("checkout", "-q", "-b", branch)
        Path("dvc.lock").write_text(lock(digest(number)), "utf-8")
        git("add", "dvc.lock")
        git("commit", "-q", "-m", f"{number}")
    git("checkout", "-q", "main")
    # A merge that takes nothing of the branch leaves what the branch had.
    git("merge", "-q", "-s", "ours", "--no-ff", "-m", "merge", "other")
    git("branch", "-D", "other")

    assert {digest(3)} == names(cache_leftovers(min_days=14.0))
    Path(".git/HEAD").write_text("broken", "utf-8")
    with pytest.raises(DataError, match="git must tell"):
        cache_leftovers(min_days=14.0)


def test_a_cache_that_others_may_use_is_left_alone(project):
    keep(digest(1))
    with (project / ".dvc/config").open("a", encoding="utf-8") as file:
        file.write("[cache]\n    dir = ../../elsewhere\n")
    found = cache_leftovers(min_days=0.0)

    assert () == found.objects
    assert "elsewhere" in found.line()
    assert "elsewhere" in found.record()["kept_for"]


def test_where_there_is_no_cache_there_is_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert 0 == cache_leftovers(min_days=0.0).num_bytes
