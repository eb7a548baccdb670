import shutil
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from flows.errors import StageError
from flows.runs.attempts import StageOutcome
from flows.runs.requests import RunRequest
from flows.runs.steps import run_stages, values_of
from tasks.params.schema import read_params

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


def test_afterwards_one_line_says_whose_the_files_are_and_dvc_yaml_is_ours_again(project, capsys):
    before = {name: Path(name).read_bytes() for name in ("params.yaml", "dvc.yaml")}
    with values_of(RunRequest((("seed", 5), ("training.lr", 0.5)))):
        assert 5 == read_params().seed
        Path("dvc.yaml").write_text("stages: {}\n", "utf-8")

    assert before == {name: Path(name).read_bytes() for name in before}
    rewritten, told = capsys.readouterr().out.splitlines()
    assert rewritten.startswith("dvc.yaml     rewritten")
    assert told.startswith("params.yaml  unchanged: seed, training.lr held for this run")


def test_without_values_or_after_a_mistake_nothing_is_said(project, capsys):
    with values_of(RunRequest()):
        pass
    with pytest.raises(ConfigurationError), values_of(RunRequest((("seed", 5),))):
        raise ConfigurationError

    assert "" == capsys.readouterr().out
