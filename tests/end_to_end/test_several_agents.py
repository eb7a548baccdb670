"""Two agents from params.yaml to reports, through the stages."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from small_world import PARAMS, write_world

from astra_core.agents import as_exported
from astra_core.files import file_digest
from astra_core.models.language_model import LanguageModel
from tasks.params.schema import read_params
from tasks.pipeline.stage import stage_of
from tasks.records.rollouts import read_rollouts
from tasks.stages.evaluation import evaluate_attacker, evaluate_checkpoint
from tasks.stages.rollouts import collect_rollouts
from tasks.stages.training import train_attacker

pytestmark = pytest.mark.real

ROLES = ["opener", "presser"]
TOLD = "you are bad"
WEIGHTS = ("model.safetensors", "agents/presser/model.safetensors", "agents.json")


def written(folder):
    """The folder after these stages."""
    write_world(folder, layers=2)
    record = PARAMS.model_dump(mode="json")
    record["system"] |= {
        "roles": ROLES,
        "agents": {"presser": {"model": "own", "instruction": TOLD}},
    }
    record["training"]["agents"] = {"presser": {"lr": 1e-3}}
    (folder / "params.yaml").write_text(yaml.safe_dump(record), "utf-8")
    params = read_params(folder / "params.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        for stage in (collect_rollouts, train_attacker, evaluate_attacker):
            stage_of(stage).run(params)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return written(tmp_path_factory.mktemp("world"))


def test_both_agents_are_exported_and_have_learned(world):
    attacker = world / "models/attacker"
    weights = [
        LanguageModel.load(folder).model.state_dict()
        for folder in (world / "models/base/tiny", attacker, attacker / "agents/presser")
    ]
    digests = {file_digest(attacker / name) for name in WEIGHTS}

    assert 3 == len(digests)
    name = "model.layers.0.mlp.up_proj.weight"
    assert all(not a[name].equal(b[name]) for a in weights for b in weights if a is not b)
    found = json.loads((attacker / "agents.json").read_text("utf-8"))
    assert ROLES == found["roles"]
    assert TOLD == found["agents"]["presser"]["instruction"]


def test_every_update_tells_of_each_agent(world):
    with (world / "reports/training_steps.csv").open() as file:
        rows = list(csv.DictReader(file))[1:]
    figures = ("train/{}/loss", "train/{}/lr", "rollout/{}/reward", "rollout/{}/kl_nats")

    for row in rows:
        assert all(row[figure.format(agent)] for figure in figures for agent in ROLES)
    # As in params.yaml; the schedule is constant.
    assert {("0.003", "0.001")} == {(r["train/opener/lr"], r["train/presser/lr"]) for r in rows}


def test_the_tracker_knows_them_too(world):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{world}/mlflow.db")
    experiment = client.get_experiment_by_name("red-team-training")
    (run,) = client.search_runs([experiment.experiment_id])

    assert {"train/presser/loss", "rollout/opener/score"} <= run.data.metrics.keys()


def test_turns_are_played_by_their_agents_in_every_stage(world):
    model = LanguageModel.load(world / "models/attacker")
    told = model.closed_ids(model.encode(TOLD))
    files = ("rollouts/rollouts", "evaluation/attacker", "evaluation/baseline")
    for file in files:
        for graph in read_rollouts(world / f"data/{file}.parquet"):
            for node in graph.nodes():
                assert (len(node.path) == 2) == (node.context_ids[: len(told)] == told)


def test_an_exported_attacker_plays_its_roles_whatever_params_say(world, monkeypatch):
    monkeypatch.chdir(world)
    params = read_params(world / "params.yaml")
    alone = params.model_copy(update={"system": PARAMS.system})
    record = json.loads((world / "reports/evaluation.json").read_text("utf-8"))
    for own in (params, alone):
        examined, _ = evaluate_checkpoint(Path("models/attacker"), own)

        assert record["attacker"] == examined["attacker"]
        # Attackers of other roles are compared on the same examination.
        assert record["evaluation_key"] == examined["evaluation_key"]


@pytest.mark.wide
def test_a_second_run_ends_with_the_same_bytes(world, tmp_path):
    again = written(tmp_path)

    for name in WEIGHTS:
        expected = file_digest(world / "models/attacker" / name)
        assert expected == file_digest(again / "models/attacker" / name)


def test_the_roles_of_an_export_are_read_back(world):
    found = as_exported(PARAMS.system, world / "models/attacker")

    assert tuple(ROLES) == found.roles
