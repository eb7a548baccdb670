import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo

from tasks.pipeline.remembered import last_files

STAGE = """\
stages:
  write:
    cmd: mkdir -p out/deep && echo one > out/one && echo two > out/deep/two
    outs:
    - out
"""
OUT = Path("out")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("made") / "project"


@pytest.fixture
def project(dvc_project, made):
    """A project with one output, made and cached: by DVC itself for the first test."""
    if made.exists():
        return Path(shutil.copytree(made, dvc_project, dirs_exist_ok=True))
    Path("dvc.yaml").write_text(STAGE, encoding="utf-8")
    with Repo(".") as repo:
        repo.reproduce()
    shutil.copytree(dvc_project, made)
    return dvc_project


def _texts():
    return {name: path.read_text() for name, path in last_files(OUT).items()}


@pytest.mark.real
def test_an_output_that_dvc_deleted_is_read_from_its_cache(project):
    whole = {"one": "one\n", "deep/two": "two\n"}

    assert whole == _texts()
    shutil.rmtree(OUT)
    assert whole == _texts()
    assert not OUT.exists()


def test_the_folder_itself_comes_first(project):
    (OUT / "one").unlink()

    assert {"deep/two": "two\n"} == _texts()


@pytest.mark.parametrize("kind", ["*.dir", "*"])
def test_a_cache_that_lacks_a_file_has_none(project, kind):
    shutil.rmtree(OUT)
    files = [path for path in Path(".dvc/cache/files").rglob(kind) if path.is_file()]
    min(files, key=lambda path: path.suffix != kind[1:]).unlink()

    assert {} == last_files(OUT)


def test_what_dvc_does_not_know_has_none(project):
    assert {} == last_files(Path("other"))
    Path("dvc.lock").unlink()
    shutil.rmtree(OUT)
    assert {} == last_files(OUT)


def test_without_dvc_there_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock = "stages: {a: {outs: [{path: out, md5: d751713988987e9331980363e24189ce.dir}]}}"
    Path("dvc.lock").write_text(lock, encoding="utf-8")

    assert {} == last_files(OUT)
