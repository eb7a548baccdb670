"""A point in a process of its own: here one whose stage fails, so that it is quick."""

import shutil
from pathlib import Path

import pytest
from sweep_results import result

from flows.errors import StageError
from flows.sweeps.points import make_points
from flows.sweeps.running import kept_result, run_point
from tasks.records.reports import write_record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def point(tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return make_points([("training.lr=1e-4",)], (0,))[0]


@pytest.mark.real
def test_a_point_that_fails_tells_why_and_keeps_no_result(point):
    # The workspace has no stage script.
    with pytest.raises(StageError, match="DVC cannot run stage prompts"):
        run_point(point, parent=None, timeout_s=None)
    assert kept_result(point) is None
    assert "DVC cannot run stage prompts" in point.log.read_text()


@pytest.mark.real
def test_values_of_the_command_do_not_replace_those_of_a_point(tmp_path, point, monkeypatch):
    (tmp_path / "tasks").mkdir()
    names = ["dvc.yaml", "astra_core", "astra_parts", "plugins"]
    for name in [*names, *(f"tasks/{path.name}" for path in (ROOT / "tasks").iterdir())]:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tasks/stage.sh").unlink()
    (tmp_path / "tasks/stage.sh").write_text('echo "from outside: $ASTRA_OVERRIDES."; exit 1')
    monkeypatch.setenv("ASTRA_OVERRIDES", '{"training.lr": 0.5}')
    with pytest.raises(StageError):
        run_point(point, parent=None, timeout_s=None)

    assert "from outside: .\n" in point.log.read_text()


def test_a_finished_point_is_not_run_again(point):
    write_record(result(("training.lr=1e-4",), 0, key=point.key), point.result)
    # A kill between the result and the removal leaves it.
    point.folder.mkdir()

    assert 0.5 == run_point(point, parent=None, timeout_s=None).success.value
    assert not point.folder.exists()
    assert "success 0.500 [0.400, 0.600], gain +0.500" in kept_result(point).line()
