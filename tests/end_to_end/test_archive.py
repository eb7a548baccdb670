"""The project as a source archive gives it: no git, in a folder with spaces and an umlaut."""

import pytest
from project import run_in
from shared import finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


def test_a_run_in_an_archive_ends_and_leaves_dvc_clean(tmp_path_factory):
    finished = finished_project(tmp_path_factory)
    archive = finished.folder
    before = {path.name: path.read_bytes() for path in finished.fresh.iterdir() if path.is_file()}
    status = run_in(archive, "-m", "dvc", "status").stdout

    assert " " in archive.name
    assert not (archive / ".git").exists()
    assert "up to date" in status
    assert before == {name: (archive / name).read_bytes() for name in before}
    told = run_in(archive, "-m", "flows.cli", "status").stdout
    assert 7 == told.count("up to date")
    assert "MLflow's store" in run_in(archive, "-m", "flows.cli", "doctor", check=False).stdout
