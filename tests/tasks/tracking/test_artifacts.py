import pytest

from tasks.machine.scratch import SCRATCH
from tasks.tracking.artifacts import fetch, kept_files
from tasks.tracking.store import connect, experiment_id

pytestmark = pytest.mark.real


@pytest.fixture
def client(in_memory):
    return connect()


@pytest.fixture
def run_id(client, tmp_path):
    """A run with a report in a folder of its artifacts."""
    run = client.create_run(experiment_id(client, "experiment")).info.run_id
    (tmp_path / "report.txt").write_text("found", encoding="utf-8")
    client.log_artifact(run, str(tmp_path / "report.txt"), "evaluation/one")
    return run


def test_files_are_named_without_their_folder(client, run_id):
    assert {"report.txt"} == kept_files(client, run_id, "evaluation/one")
    assert frozenset() == kept_files(client, run_id, "evaluation/two")


def test_a_file_and_a_folder_are_there_for_the_moment(client, run_id):
    with fetch(client, run_id, "evaluation/one/report.txt") as file:
        assert "found" == file.read_text(encoding="utf-8")
    with fetch(client, run_id, "evaluation/one") as folder:
        assert ["report.txt"] == [path.name for path in folder.iterdir()]

    assert not file.exists()
    assert [] == list(SCRATCH.glob("*"))
