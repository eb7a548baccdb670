import shutil
from pathlib import Path

import pytest
from project import run_in
from shared import finished_project

from astra_core.errors import ConfigurationError
from flows.runs.workspaces import WORKSPACES, workspace
from tasks.params.schema import read_params
from tasks.tracking.store import project_root

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose code is one file."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/code.py").write_text("one")
    (tmp_path / "my.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workspace_has_its_own_values_todays_code_and_what_was_made_there(project):
    before = Path("params.yaml").read_bytes()
    own = ["prompts.source=file", "prompts.path=my.txt"]
    with workspace("night", [*own, "seed=5"]):
        assert (project / WORKSPACES / "night", 5) == (Path.cwd(), read_params().seed)
        assert project == project_root()
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
        assert project == Path.cwd()

    assert before == Path("params.yaml").read_bytes()


def test_a_path_out_of_the_project_is_refused_with_a_way_out(project):
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
