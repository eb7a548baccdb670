"""What changes the rollouts too: curricula, runs of a prompt and agents, through two stages."""

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from guide_project import forget_training, left, train_apart
from small_world import PARAMS

from astra_core.files import file_digest
from astra_core.models.language_model import LanguageModel
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_prompts
from tasks.__main__ import main
from tasks.records.rollouts import read_rollouts

MINE = __name__
TREE = {"tree_width": 3, "num_responses": 2}
SHORT = {"training_steps": 2, "evaluate": "none", "algorithm": "reinforce"}


@pytest.fixture
def both(pipeline, world, tmp_path, monkeypatch):
    """``rollouts`` and then ``training``, in a copy of the project."""
    monkeypatch.chdir(shutil.copytree(world, tmp_path / "copy"))

    def run(*, training, **sections):
        record = PARAMS.model_dump(mode="json")
        for name, own in sections.items():
            record[name] = {**record[name], **own}
        Path("params.yaml").write_text(yaml.safe_dump(record), "utf-8")
        assert 0 == main(["rollouts"])
        ran = pipeline(training=training, **sections)
        assert 0 == ran.status, ran.said
        return ran

    return run


class Later(TreeSampler):
    """Short prompts first, the longest ones last."""

    def episodes(self, iteration, count):
        ordered = sorted(self.prompts, key=lambda prompt: (len(prompt.text), prompt.prompt_id))
        start = iteration * count % len(ordered)
        return tuple((ordered * 2)[start : start + count])

    def remember(self, graphs):
        return {"longest": float(max(len(graph.prompt.text) for graph in graphs))}


class Harder(TreeSampler):
    """The easiest prompts first, as the user's file calls them."""

    def episodes(self, iteration, count):
        ordered = sorted(self.prompts, key=lambda prompt: prompt.metadata["difficulty"])
        return tuple(ordered[iteration * count : (iteration + 1) * count])

    def remember(self, graphs):
        return {"hardest": float(max(graph.prompt.metadata["difficulty"] for graph in graphs))}


@pytest.mark.row(61)
def test_a_curriculum_by_iteration_reaches_the_figures(both):
    sampler = {"sampler": {"name": f"{MINE}:Later", "options": TREE}}
    training = {"training_steps": 3, "evaluate": "none", "algorithm": "reinforce"}
    ran = both(training=training, rollouts=sampler)

    longest = [float(row["sampler/longest"]) for row in ran.rows[1:]]
    assert longest[1] == min(longest) < longest[-1] == max(longest[1:])


@pytest.mark.row(62)
def test_a_curriculum_by_a_column_of_the_users_file_reaches_the_figures(both):
    rows = [
        {"prompt_id": own.prompt_id, "text": own.text, "metadata": json.dumps({"difficulty": -at})}
        for at, own in enumerate(tiny_prompts(12))
    ]
    pq.write_table(pa.Table.from_pylist(rows), "data/valid/train.parquet")
    sampler = {"sampler": {"name": f"{MINE}:Harder", "options": TREE}}
    training = {"training_steps": 3, "evaluate": "none", "algorithm": "reinforce"}
    ran = both(training=training, rollouts=sampler)

    hardest = list(dict.fromkeys(float(row["sampler/hardest"]) for row in ran.rows[1:]))
    assert [-4.0, 0.0] == hardest[-2:]


@pytest.mark.row(49)
def test_the_runs_of_a_prompt_are_compared_in_the_pipeline(both):
    found = {}
    for compare in ("siblings", "prompt", "runs"):
        grpo = {"name": "grpo", "defaults": "published", "options": {"compare": compare}}
        found[compare] = both(
            training={**SHORT, "algorithm": grpo}, rollouts={"runs_per_prompt": 2}
        )
    graphs = list(read_rollouts(Path("data/rollouts/rollouts.parquet")))

    assert {2} == set(Counter(graph.prompt.prompt_id for graph in graphs).values())
    assert {0, 1} == {graph.run_id for graph in graphs}
    assert 3 == len({ran.report["checkpoint_digest"] for ran in found.values()})
    # Siblings are compared in several groups of a tree, runs in one group for all of a prompt's.
    groups = [float(found[name].rows[1]["train/groups"]) for name in found]
    assert groups[0] > groups[1] == groups[2]


def _agents(model):
    presser = {"model": model, "instruction": "why"}
    return {"roles": ["opener", "presser"], "agents": {"presser": presser}}


@pytest.mark.row(84)
@pytest.mark.parametrize("model", ["shared", "own"])
def test_agents_killed_amid_a_training_end_with_the_same_bytes(both, model):
    Path("plugins/killer.py").write_text(KILLER, "utf-8")
    options = {"kind": "StepLR", "arguments": {"step_size": 1, "gamma": 0.5}}
    halving = {"name": "torch", "options": options}
    own = {"agents": {"presser": {"lr": 0.004, "schedule": halving}}} if model == "own" else {}
    training = {
        "trainer": {"name": "plugins.killer:Killer"},
        "training_steps": 3,
        "evaluate": "last",
        "algorithm": "reinforce",
        "checkpoint": {"save_every": 1},
        **own,
    }
    whole = both(training=training, system=_agents(model))
    before = _digests()
    forget_training()
    assert -signal.SIGKILL == train_apart(KILL="yes")
    assert 0 == train_apart()
    again = left(0, "")
    assert (before, whole.report, whole.rows) == (_digests(), again.report, again.rows)
    figures = ("train/{}/loss", "rollout/{}/reward", "rollout/{}/score")
    for agent in ("opener", "presser"):
        assert all(row[name.format(agent)] for name in figures for row in whole.rows[1:])
    if model == "own":
        rates = [float(row["train/presser/lr"]) for row in whole.rows[1:]]
        assert [0.004, 0.002, 0.001] == list(dict.fromkeys(rates))
        assert {"0.003"} == {row["train/opener/lr"] for row in whole.rows[1:]}


KILLER = """
import os
from astra_core.training.trainer import Trainer


class Killer(Trainer):
    def save(self):
        super().save()
        if self.progress.training_step == 2 and os.environ.pop("KILL", ""):
            os.kill(os.getpid(), 9)
"""


def _digests():
    folders = (Path("models/attacker"), Path("models/checkpoint"))
    files = (file for folder in folders for file in sorted(folder.rglob("*.safetensors")))
    return {str(file): file_digest(file) for file in files}


@pytest.mark.row(87)
def test_a_part_that_is_never_active_is_exported_as_it_began(pipeline):
    def moved(**part):
        parts = {"embedding": {"pattern": "embed", **part}}
        assert 0 == pipeline(training={**SHORT, "parts": parts}).status
        begun, ended = (
            LanguageModel.load(Path(folder)).model.get_input_embeddings().weight
            for folder in ("models/base/tiny", "models/attacker")
        )
        return float((begun - ended).abs().sum())

    assert 0.0 == moved(active="never") < moved(lr_factor=0.5) < moved(lr_factor=2.0)
