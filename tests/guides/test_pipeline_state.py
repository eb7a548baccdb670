"""State of one's own, of every kind at once: a killed run of the stage ends as if it were not."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from guide_project import forget_training, left, train_apart
from registry_project import enter_project, register, write_project
from small_world import PARAMS

from astra_core.files import file_digest
from astra_core.models.folders import attacker_digest
from astra_parts.testing import tiny_language_model
from tasks.__main__ import main
from tasks.tracking.store import connect

# Everything of one's own that has a state, and what that state decides is in the figures.
KEEPERS = """
import os
import torch
from astra_parts.algorithms.reinforce import REINFORCE
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.training.optimization.optimizers import SchedulePlugin
from astra_core.training.trainer import Trainer


class Keeping:
    level = 0.0

    def state(self):
        return {**super().state(), "level": torch.tensor(self.level, dtype=torch.float64)}

    def load_state(self, state):
        state = dict(state)
        self.level = float(state.pop("level"))
        super().load_state(state)


class Counting(Keeping, REINFORCE):
    def remember(self, graphs):
        self.level += 1.0
        return {**super().remember(graphs), "level": self.level}


class Adaptive(Keeping, TreeSampler):
    def episodes(self, iteration, count):
        ordered = sorted(self.prompts, key=lambda prompt: prompt.prompt_id)
        start = int(self.level * 10) % len(ordered)
        return tuple((ordered * 2)[start : start + count])

    def remember(self, graphs):
        nodes = [node for graph in graphs for node in graph.nodes()]
        self.level += sum(node.score for node in nodes) / len(nodes) + 0.1
        return {"level": self.level}


class Rising(Keeping, AdversarialReward):
    def remember(self, graphs):
        self.level += 1.0
        return {**super().remember(graphs), "level": self.level}


class Warming(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)


class Averaging(Keeping, Trainer):
    def update(self, window, experience, *, is_first=True):
        report = super().update(window, experience, is_first=is_first)
        self.level = 0.5 * self.level + report.loss
        return report

    def figures(self):
        return {"level": self.level}

    def save(self):
        super().save()
        if self.progress.training_step == 2 and os.environ.pop("KILL", ""):
            os.kill(os.getpid(), 9)
"""


@pytest.mark.row(26)
@pytest.mark.row(29)
@pytest.mark.row(30)
@pytest.mark.row(63)
@pytest.mark.row(81)
def test_every_state_of_ones_own_survives_a_kill(pipeline, plugin):
    plugin("keepers:Counting", KEEPERS)
    named = {"trainer": "Averaging", "algorithm": "Counting", "schedule": "Warming"}
    own = {kind: {"name": f"plugins.keepers:{name}"} for kind, name in named.items()}
    tree = {"name": "plugins.keepers:Adaptive", "options": {"tree_width": 3, "num_responses": 2}}
    whole = pipeline(
        training={**own, "training_steps": 4, "checkpoint": {"save_every": 1}},
        rollouts={"sampler": tree},
        reward={"name": "plugins.keepers:Rising", "options": {}},
    )
    assert 0 == whole.status, whole.said
    forget_training()
    assert -signal.SIGKILL == train_apart(KILL="yes")
    assert 0 == train_apart()
    again = left(0, "")
    assert (whole.report, whole.rows) == (again.report, again.rows)
    last = whole.rows[-1]
    assert ["4.0", "4.0"] == [last["train/level"], last["reward/level"]]
    assert len({row["sampler/level"] for row in whole.rows[1:]}) == 4
    assert len({row["trainer/level"] for row in whole.rows[1:]}) == len(whole.rows) - 1
    assert json.loads(Path("models/attacker/astra.json").read_text("utf-8"))["run_key"]


@pytest.fixture
def champion(pipeline, world, tmp_path, monkeypatch):
    """A copy of the project whose registry has a champion, with which the stages begin."""
    home = enter_project(tmp_path, monkeypatch)
    write_project(home)
    shutil.rmtree("models/attacker")
    tiny_language_model(seed=8).save(Path("models/attacker"))
    note = {"digest": attacker_digest(Path("models/attacker")), "run_key": "5f" * 32}
    Path("models/attacker/astra.json").write_text(json.dumps(note | {"metric": "eval/score_mean"}))
    register()
    connect().set_registered_model_alias("attacker", "champion", "1")
    for folder in ("data", "models", "reports"):
        shutil.rmtree(folder)
    for folder in ("data", "models"):
        shutil.copytree(
            world / folder, folder, ignore=shutil.ignore_patterns("attacker", "checkpoint")
        )
    shutil.copytree(world / "plugins", "plugins")
    return note["digest"]


@pytest.mark.row(88)
def test_a_champion_is_trained_on_and_then_further_in_another_clone(
    pipeline, champion, tmp_path_factory, monkeypatch
):
    earlier = {"source": "folder", "path": str(Path("models/base/tiny").absolute())}
    target = shutil.copytree("models/base/tiny", tmp_path_factory.mktemp("target") / "tiny")
    models = {
        "attacker": {"source": "version", "version": "champion"},
        "target": {**earlier, "path": str(target)},
    }
    training = {"algorithm": "reinforce", "evaluate": "last", "keep": "last"}

    def trained(steps):
        own = {**training, "training_steps": steps}
        ran = pipeline(keep_runs=True, training=own, models=models)
        assert 0 == ran.status, ran.said
        return ran

    record = PARAMS.model_dump(mode="json")
    record["models"] |= models
    Path("params.yaml").write_text(yaml.safe_dump(record), "utf-8")
    assert (0, 0) == (main(["models"]), main(["rollouts"]))
    first = trained(2)
    ran, digests = {}, {}
    for name in ("further", "from the start"):
        # Another clone has what DVC keeps: no run, and an empty registry.
        left_out = shutil.ignore_patterns("runs", "mlflow.db", "mlruns", "mlartifacts")
        clone = tmp_path_factory.mktemp("clone") / "project"
        shutil.copytree(".", clone, ignore=left_out)
        if name == "from the start":
            shutil.rmtree(clone / "models/checkpoint")
        with monkeypatch.context() as there:
            enter_project(clone, there)
            ran[name] = trained(4)
            digests[name] = file_digest(Path("models/attacker/model.safetensors"))

    lines = {
        name: [line for line in each.said if "continues from" in line] for name, each in ran.items()
    }
    goes_on = ["training     continues from models/checkpoint, training step 2"]
    assert goes_on == lines["further"], ran["further"].said
    assert [] == lines["from the start"]
    assert digests["further"] == digests["from the start"]
    assert ran["further"].rows == ran["from the start"].rows
    assert len(first.rows) < len(ran["further"].rows)
    parent = ran["further"].report["parent"]
    assert ("1", "champion", champion) == (parent["version"], parent["alias"], parent["digest"])
