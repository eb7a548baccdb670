import shutil
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from flows.settings import as_if, change_params
from flows.sweeps.points import make_points

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose code is one file."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/code.py").write_text("one")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.real
def test_points_are_named_by_what_decides_their_results(project):
    settings = [("training.lr=1e-4",), ("training.lr=2e-4",)]
    points = make_points(settings, (0, 1))
    change_params(["flow.retries=1", "promotion.horizon=7", "registration.experiment=other"])
    again = make_points(settings, (0, 1))
    (project / "tasks/code.py").write_text("two")
    edited = make_points(settings, (0, 1))

    assert ["training.lr=1e-4 seed=0", "training.lr=1e-4 seed=1"] == [p.name for p in points[:2]]
    assert 4 == len({point.key for point in points})
    assert [point.key for point in points] == [point.key for point in again]
    assert not {point.key for point in points} & {point.key for point in edited}
    assert (1e-4, 1) == (points[1].params.training.lr, points[1].params.training_seed)


def test_a_points_own_values_are_laid_over_those_of_the_command(project):
    with as_if(["training.lr=3e-4", "training.training_steps=2"]):
        (point,) = make_points([("training.lr=1e-4",)], (0,))

    assert (1e-4, 2) == (point.params.training.lr, point.params.training.training_steps)
    assert "training_steps: 2" in point.text


def test_points_share_a_lock_for_each_stage_that_would_do_the_same(project):
    first, other_seed, other_rate = (
        dict(turn.split("=", 1) for turn in point.turns)
        for point in (
            *make_points([("training.lr=1e-4",)], (0, 1)),
            *make_points([("training.lr=2e-4",)], (0,)),
        )
    )

    assert ["prompts", "validation", "models", "rollouts", "training", "evaluation"] == list(first)
    assert {"prompts", "validation"} == {n for n in first if first[n] == other_seed[n]}
    assert {"training", "evaluation"} == {n for n in first if first[n] != other_rate[n]}


def test_an_edited_prompt_file_makes_other_points(project):
    (project / "my.txt").write_text("a")
    setting = [("prompts.source=file", "prompts.path=my.txt")]
    (before,) = make_points(setting, (0,))
    (project / "my.txt").write_text("b")
    (after,) = make_points(setting, (0,))

    assert before.key != after.key


def test_a_workspace_is_whole_or_made_again(project):
    (project / "my.txt").write_text("a")
    setting = ("prompts.source=file", "prompts.path=my.txt", "training.lr=1e-4")
    (point,) = make_points([setting], (3,))
    point.folder.mkdir(parents=True)
    (point.folder / "half").touch()
    point.make_workspace()
    (point.folder / "runs").mkdir()
    point.make_workspace()

    assert not (point.folder / "half").exists()
    assert (point.folder / "runs").is_dir()
    assert "a" == (point.folder / "my.txt").read_text()
    assert "lr: 1e-4" in (point.folder / "params.yaml").read_text()
    assert "- my.txt" in (point.folder / "dvc.yaml").read_text()
    assert (project / ".astra/replies").samefile(point.folder / ".astra/replies")
    assert "1e-4" not in (project / "params.yaml").read_text().split("  lr: ")[1]


def test_a_workspace_whose_removal_was_killed_is_made_again(project, monkeypatch):
    (point,) = make_points([("training.lr=1e-4",)], (3,))
    point.make_workspace()

    def killed(*_, **__):
        (point.folder / "dvc.yaml").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        point.remove_workspace()
    monkeypatch.undo()
    monkeypatch.chdir(project)
    point.make_workspace()

    assert (point.folder / "dvc.yaml").is_file()


def test_seeds_that_change_nothing_are_one_line(project):
    change_params(["training_seed=5"])

    with pytest.raises(ConfigurationError, match="training_seed must be null in a sweep"):
        make_points([()], (0, 1))
    assert 1 == len(make_points([()], (0,)))
