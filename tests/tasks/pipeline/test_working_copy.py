import subprocess

import pytest

from tasks.pipeline.working_copy import LOCAL, WITHOUT_GIT, has_git, prepare_dvc


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
