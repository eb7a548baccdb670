import shutil
from pathlib import Path

import pytest

from flows.errors import StageError
from flows.runs.attempts import StageOutcome
from flows.runs.requests import RunRequest
from flows.runs.steps import run_stages

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with params.yaml and dvc.yaml."""
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)


def test_stages_run_in_order_until_one_fails():
    seen = []

    def run(name, /, *, force=False):
        seen.append((name, force))
        error = StageError("no models") if name == "models" else None
        return StageOutcome(name, "Completed", 0.0, 1, error=error).checked()

    with pytest.raises(StageError, match="no models"):
        run_stages(RunRequest(start="validation", end="training", force=True), run)

    assert [("validation", True), ("models", True)] == seen


def test_what_the_registry_lost_is_registered_once_more(project, capsys):
    seen = []

    def run(name, /, *, force=False):
        seen.append((name, force))
        return StageOutcome(name, "Skipped", 0.0, 1)

    # No receipt: as after the registry was deleted.
    run_stages(RunRequest(only="registration"), run)

    assert [("registration", False), ("registration", True)] == seen
    assert "the registry has lost this version" in capsys.readouterr().out
