"""NIP's guide: several agents, other data, artifacts, parts, and an earlier attacker."""

import shutil
from pathlib import Path

import pytest
import yaml
from guide_scripts import SMALL, preset
from registry_project import enter_project, register, write_project

from astra_core import Harness, Trainer
from astra_core.config import AgentConfiguration, Choice
from astra_core.training.harness import Experience
from tasks.__main__ import main
from tasks.records.models import read_manifest
from tasks.tracking.store import connect

MINE = __name__


@pytest.mark.wide
@pytest.mark.row(84, "several agents, shared models")
@pytest.mark.parametrize("model", ["shared", "own"])
def test_several_agents_learn_together(here, model):
    agents = {"presser": AgentConfiguration(model=model, instruction="why")}
    system = SMALL.system.model_copy(update={"roles": ("opener", "presser"), "agents": agents})
    deeper = Choice(name="tree", options={"tree_width": 3, "tree_depth": 2, "num_responses": 1})
    trainer = preset(
        SMALL.model_copy(update={"system": system, "sampler": deeper}),
        agents={"presser": {"lr": 0.02}} if model == "own" else {},
    )
    reports = list(trainer.steps())
    metrics = reports[-1].metrics

    assert {f"train/{name}/loss" for name in ("opener", "presser")} <= metrics.keys()
    if model == "own":
        assert (0.01, 0.02) == (metrics["train/opener/lr"], metrics["train/presser/lr"])


class NoRollouts(Harness):
    """An experience that comes from elsewhere."""

    def experience(self, iteration, *, graphs=None):
        rolled = super().experience(0, graphs=graphs)
        return Experience(iteration, rolled.graphs, rolled.steps, {"rollout/own": 1.0}, 0.0)


class OtherData(Trainer):
    """Another structure of data: only the harness is replaced."""

    def __init__(self, *arguments, **parts):
        super().__init__(*arguments, **parts)
        self.harness = NoRollouts(self.harness.sampler, self.harness.algorithm, num_episodes=2)


@pytest.mark.wide
@pytest.mark.row(85, "`Trainer` for another structure of data")
def test_another_harness_feeds_the_same_loop(here):
    reports = list(preset(trainer={"name": f"{MINE}:OtherData"}).steps())

    assert {1.0} == {report.metrics["rollout/own"] for report in reports}


@pytest.mark.row(86, "artifacts are logged")
def test_params_and_figures_are_at_the_tracker(pipeline, world):
    from mlflow import MlflowClient

    pipeline(training={"lr": 0.011})
    client = MlflowClient(f"sqlite:///{world}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "red-team-training"]
    newest = client.search_runs([experiment.experiment_id], max_results=1)[0]

    assert "0.011" == newest.data.params["training.lr"]
    assert "eval/attack_success_rate" in newest.data.metrics


@pytest.mark.wide
@pytest.mark.row(86)
def test_a_registered_run_has_its_artifacts(tmp_path, monkeypatch):
    project = enter_project(tmp_path, monkeypatch)
    write_project(project)
    files = {file.path for file in connect().list_artifacts(register().run_id)}

    assert {"lineage.json", "figures.csv"} <= files


@pytest.mark.wide
@pytest.mark.row(87, "rates per part, schedules of updates")
def test_a_part_has_its_own_rate_and_timetable(here):
    def moved_by(**part):
        trainer = preset(parts={"embedding": {"pattern": "embed", **part}}, training_steps=1)
        weight = trainer.sampler.system.attacker.model.get_input_embeddings().weight
        before, moved = weight.detach().clone(), 0.0
        for _ in trainer.steps():
            moved = float((weight.detach() - before).abs().sum())
        return moved

    moved = [moved_by(lr_factor=factor) for factor in (0.0, 1.0, 2.0)]
    assert 0.0 == moved[0] < moved[1] < moved[2]
    assert 0.0 == moved_by(active="never")


@pytest.mark.row(88, "training goes on from an earlier attacker")
def test_an_earlier_attacker_is_where_training_begins(pipeline, world, tmp_path, monkeypatch):
    pipeline()
    again = shutil.copytree(world, tmp_path / "again")
    monkeypatch.chdir(again)
    shutil.move("models/attacker", "earlier")
    record = yaml.safe_load(Path("params.yaml").read_text("utf-8"))
    earlier = {"source": "folder", "path": "earlier"}
    record["models"] |= {"attacker": earlier, "target": earlier}
    Path("params.yaml").write_text(yaml.safe_dump(record), "utf-8")

    assert 0 == main(["models"])
    begun = read_manifest(Path("models/base")).attacker
    weights = "model.safetensors"
    assert begun.parent is not None
    assert Path("earlier", weights).read_bytes() == Path(begun.path, weights).read_bytes()
