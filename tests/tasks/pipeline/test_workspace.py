import configparser
import subprocess
from pathlib import Path

import pytest

from tasks.pipeline.workspace import (
    LOCAL,
    WITHOUT_GIT,
    copy_project,
    has_git,
    prepare_dvc,
    share_cache,
)


def write(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_a_copy_has_code_and_inputs_and_no_outputs(tmp_path):
    root, folder = tmp_path / "ä b", tmp_path / "copy"
    write(root, "tasks/x.py", "params.yaml", "data/old", "my/prompts.txt", "my/other.txt")
    write(root, "tasks/__pycache__/x.pyc")
    folder.mkdir()
    copy_project(root, folder, inputs=[Path("my/prompts.txt"), tmp_path / "outside"])

    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert ["my/prompts.txt", "params.yaml", "tasks/x.py"] == found


def test_weights_are_linked_and_other_files_are_copies(tmp_path):
    root, folder = tmp_path / "root", tmp_path / "copy"
    write(root, "m/model.safetensors", "m/config.json")
    (root / "m/model.safetensors").write_bytes(bytes(2**20 + 1))
    folder.mkdir()
    copy_project(root, folder, inputs=[Path("m")])

    assert 2 == (folder / "m/model.safetensors").stat().st_nlink
    assert 1 == (folder / "m/config.json").stat().st_nlink


def test_the_cache_is_named_relative_so_that_a_project_can_be_moved(tmp_path):
    root, folder = tmp_path / "ä b", tmp_path / "ä b/sweeps/points/1"
    folder.mkdir(parents=True)
    share_cache(root, folder)
    record = configparser.ConfigParser()
    record.read(folder / ".dvc/config.local", encoding="utf-8")

    # DVC reads it from the folder of the file.
    assert (folder / ".dvc" / record["cache"]["dir"]).resolve() == (root / ".dvc/cache").resolve()
    assert str(tmp_path) not in (folder / ".dvc/config.local").read_text()
    assert "true" == record["core"]["no_scm"]


@pytest.fixture
def folder(tmp_path):
    """A project as an archive holds it, in a folder with a space and an umlaut."""
    place = tmp_path / "ä b" / "project"
    (place / ".dvc").mkdir(parents=True)
    (place / ".dvc" / "config").touch()
    return place


def test_without_git_dvc_is_configured_so_in_the_file_of_this_machine(folder):
    from dvc.repo import Repo

    prepare_dvc(folder)
    with Repo(str(folder)) as repo:
        assert {} == repo.status()
    assert "" == (folder / ".dvc" / "config").read_text()


@pytest.mark.parametrize("above", [0, 1])
def test_git_here_or_above_is_left_to_dvc(folder, above):
    prepare_dvc(folder)
    top = [folder, *folder.parents][above]
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    prepare_dvc(folder)

    assert has_git(folder)
    assert not (folder / LOCAL).exists()


def test_a_configuration_that_a_person_wrote_stays(folder):
    own = WITHOUT_GIT + "[cache]\n    dir = /elsewhere\n"
    (folder / LOCAL).write_text(own)
    prepare_dvc(folder)

    assert own == (folder / LOCAL).read_text()
    (folder / ".git").mkdir()
    prepare_dvc(folder)
    assert own == (folder / LOCAL).read_text()


def test_what_is_no_dvc_project_is_left_alone(tmp_path):
    prepare_dvc(tmp_path)

    assert [] == list(tmp_path.iterdir())
