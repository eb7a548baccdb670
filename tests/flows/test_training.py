"""The whole flow: refused before it starts, and once for real on a project of toy size."""

import json
import shutil
from pathlib import Path

import pytest
from project import run_in
from shared import finished_project

from astra_core.errors import ConfigurationError
from flows.errors import StageError
from flows.runs.attempts import StageOutcome
from flows.runs.requests import RunRequest
from flows.training import WORKSPACES, red_team_training, run_stages, stage_runner, workspace
from tasks.params.schema import Params, read_params
from tasks.tracking.store import project_root

pytestmark = pytest.mark.real


def test_unusable_params_stop_the_flow_before_any_stage(tmp_path, monkeypatch, prefect_server):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("training: {lrr: 1}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"training\.lrr is not a known key"):
        red_team_training()

    assert not (tmp_path / ".astra").exists()
    assert not (tmp_path / "dvc.yaml").exists()


def test_a_stage_gets_the_limit_of_its_own_from_params(toy, in_flow):
    folder = toy("import time; time.sleep(60)")
    flow = {"retries": 0, "timeouts_s": {"toy": 3.0}}
    params = Params.model_validate_json(json.dumps({"flow": flow}))
    outcomes = []
    with pytest.raises(StageError, match="stage toy must end within 3 s"):
        in_flow(stage_runner(params, outcomes), "toy")

    assert ["TimedOut"] == [outcome.state for outcome in outcomes]
    assert not (folder / "out.txt").exists()


@pytest.mark.wide
@pytest.mark.timeout(1800)
def test_astra_run_trains_then_skips_and_registers_again_what_was_lost(tmp_path, tmp_path_factory):
    finished = finished_project(tmp_path_factory)
    folder = finished.copy_to(tmp_path / "project")
    second = run_in(folder, "-m", "flows.cli", "run")
    for file in folder.glob("mlflow.db*"):
        file.unlink()
    third = run_in(folder, "-m", "flows.cli", "run")

    assert ["", ""] == [result.stderr for result in (second, third)]
    assert "up to date" not in finished.said
    assert 7 == second.stdout.count("up to date")
    assert "registration the registry has lost this version: once more" in third.stdout
    for said in (finished.said, second.stdout, third.stdout):
        assert "registered     attacker version 1" in said
        assert "promotion      attacker version 1" in said
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout


ROOT = Path(__file__).parents[2]


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
        return StageOutcome(name, "Completed", 0.0, 1, error=error).require_done()

    with pytest.raises(StageError, match="no models"):
        run_stages(RunRequest(start="validation", end="training", force=True), run)

    assert [("validation", True), ("models", True)] == seen


def test_what_the_registry_lost_is_registered_once_more(project, capsys):
    seen = []

    def run(name, /, *, force=False):
        seen.append((name, force))
        return StageOutcome(name, "Skipped", 0.0, 1)

    # No receipt: as after a pull.
    run_stages(RunRequest(only="registration"), run)

    assert [("registration", False), ("registration", True)] == seen
    assert "no receipt here says which version this is" in capsys.readouterr().out


def test_what_changed_under_a_run_is_done_again_before_it_registers(monkeypatch, project, capsys):
    seen = []
    monkeypatch.setattr("flows.training.is_current", lambda name: name != "training")

    def run(name, /, *, force=False):
        seen.append((name, force))
        return StageOutcome(name, "Completed", 0.0, 1)

    run_stages(RunRequest(start="training", end="registration", force=True), run)

    assert ["training", "evaluation", "training", "registration"] == [s[0] for s in seen[:4]]
    assert ("training", False) == seen[2]
    assert "training     what it depends on changed during this run" in capsys.readouterr().out


@pytest.fixture
def workspace_project(tmp_path, monkeypatch):
    """A project whose code is one file."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/code.py").write_text("one")
    (tmp_path / "my.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workspace_has_its_own_values_todays_code_and_what_was_made_there(workspace_project):
    before = Path("params.yaml").read_bytes()
    own = ["prompts.source=file", "prompts.path=my.txt"]
    with workspace("night", [*own, "seed=5"]):
        assert (workspace_project / WORKSPACES / "night", 5) == (Path.cwd(), read_params().seed)
        assert workspace_project == project_root()
        Path("made").touch()
    Path("tasks/code.py").rename("tasks/other.py")
    Path("my.txt").write_text("b")
    with workspace("night", [*own, "seed=6"]):
        assert 6 == read_params().seed
        assert ["other.py"] == [path.name for path in Path("tasks").iterdir()]
        assert "b" == Path("my.txt").read_text()
        assert Path("made").is_file()
    with workspace("sweep", ["seed=7"]):
        assert not Path("made").exists()
    with workspace("night", []):
        assert workspace_project == Path.cwd()

    assert before == Path("params.yaml").read_bytes()


def test_a_path_out_of_the_project_is_refused_with_a_way_out(workspace_project):
    own = ["prompts.source=file", "prompts.path=../my.txt"]
    with (
        pytest.raises(ConfigurationError, match=r"in the project, got \.\./my\.txt; write"),
        workspace("night", own),
    ):
        pass


# As a deployment calls it; the other seed of the data makes other prompts.
NIGHT = """\
from flows.servers.environment import quiet_run
with quiet_run():
    from flows.training import red_team_training
    for _ in range(2):
        red_team_training(overrides={"data_seed": 7}, end="prompts")
"""


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_a_flow_with_values_of_its_own_leaves_the_project_as_it_is(tmp_path, tmp_path_factory):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path / "project")
    name = Path("data/prompts/train.parquet")
    prompts = (folder / name).read_bytes()
    said = run_in(folder, "-c", NIGHT).stdout

    assert 1 == said.count("prompts      up to date")
    assert prompts != (folder / WORKSPACES / "flow" / name).read_bytes()
    assert prompts == (folder / name).read_bytes()
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout
