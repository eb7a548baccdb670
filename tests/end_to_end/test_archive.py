"""The project as a source archive gives it: no git, in a folder with spaces and an umlaut."""

import shutil

import pytest
from project import make_project, run_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = make_project(tmp_path_factory.mktemp("archive") / "ä b" / "astra source")
    shutil.rmtree(folder / ".git")
    return folder


def test_a_run_in_an_archive_ends_and_leaves_dvc_clean(archive):
    before = {path.name: path.read_bytes() for path in archive.iterdir() if path.is_file()}
    run_in(archive, "-m", "flows.cli", "run")
    status = run_in(archive, "-m", "dvc", "status").stdout

    assert "up to date" in status
    assert before == {name: (archive / name).read_bytes() for name in before}
    told = run_in(archive, "-m", "flows.cli", "status").stdout
    assert 7 == told.count("up to date")
    assert "MLflow's store" in run_in(archive, "-m", "flows.cli", "doctor", check=False).stdout
