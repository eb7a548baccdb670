"""The columns of a user's csv file and several runs of each prompt, from the file to the report."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_world import PARAMS, write_world

from astra_core.config import AlgorithmChoice, Choice
from astra_core.metrics.statistics import Interval
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import check_reward, check_sampler
from astra_parts.testing.tiny import WORDS
from flows.runs.summary import evaluation_lines
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import ValidationConfiguration
from tasks.pipeline.stage import stage_of
from tasks.records.evaluation import read_evaluation
from tasks.records.rollouts import read_rollouts
from tasks.stages.evaluation import evaluate_attacker
from tasks.stages.prompts import prepare_prompts
from tasks.stages.rollouts import collect_rollouts
from tasks.stages.training import train_attacker
from tasks.stages.validation import validate_prompts

pytestmark = pytest.mark.real

CATEGORIES = ("fraud", "theft", "lies")
BONUS = 5.0
SEEN = []


class Curriculum(TreeSampler):
    """Rolls out prompts up to a difficulty that grows with the iteration."""

    def episodes(self, iteration, count):
        easy = [p for p in self.prompts if p.metadata.get("difficulty", 0) <= iteration + 1]
        chosen = tuple(easy[place % len(easy)] for place in range(count))
        SEEN.append((iteration, {prompt.metadata.get("difficulty") for prompt in chosen}))
        return chosen


class Fraudulent(AdversarialReward):
    """Pays more in one category."""

    def assign(self, graphs):
        def paid(node):
            reward = node.reward if node.has_failed else node.reward + BONUS
            return replace(node, reward=reward, children=tuple(map(paid, node.children)))

        return [
            replace(graph, children=tuple(map(paid, graph.children)))
            if graph.prompt.metadata.get("category") == "fraud"
            else graph
            for graph in super().assign(graphs)
        ]


def write_goals(path):
    """A file as a benchmark of behaviours has it, without a column for the prompt itself."""
    draw = random.Random(0)
    harmless = [word for word in WORDS if word not in {"bad", "worse"}]
    goals = dict.fromkeys(" ".join(draw.choices(harmless, k=8)) for _ in range(80))
    frame = pd.DataFrame({"goal": list(goals)})
    frame["category"] = [CATEGORIES[number % 3] for number in range(len(frame))]
    frame["difficulty"] = [1 + number % 4 for number in range(len(frame))]
    frame["BehaviorID"] = [f"behaviour_{number}" for number in range(len(frame))]
    theirs = frame.rename(columns={"goal": "Behavior", "category": "SemanticCategory"})
    theirs.to_csv(path, index=False)
    return frame.set_index("goal")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder in which every stage up to the evaluation ran, and the rows of the file."""
    folder = tmp_path_factory.mktemp("project")
    tree = {"name": f"{__name__}:Curriculum", "options": {"tree_width": 1, "num_responses": 1}}
    runs = {"name": "grpo", "defaults": "published", "options": {"compare": "runs"}}
    updates = {"algorithm": AlgorithmChoice(**runs), "training_steps": 2}
    params = PARAMS.model_copy(
        update={
            "prompts": PromptsConfiguration(
                source="file",
                path=Path("goals.csv"),
                goal_column="Behavior",
                category_column="SemanticCategory",
                dev_fraction=0.3,
                test_fraction=0.2,
            ),
            "validation": ValidationConfiguration(min_prompts=3),
            "rollouts": PARAMS.rollouts.model_copy(
                update={"sampler": Choice(**tree), "runs_per_prompt": 3, "num_prompts": 4}
            ),
            "reward": Choice(name=f"{__name__}:Fraudulent"),
            "training": PARAMS.training.model_copy(update=updates),
            "evaluation": PARAMS.evaluation.model_copy(update={"num_prompts": 50}),
        }
    )
    SEEN.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        write_world(folder)
        rows = write_goals(folder / "goals.csv")
        for stage in (
            prepare_prompts,
            validate_prompts,
            collect_rollouts,
            train_attacker,
            evaluate_attacker,
        ):
            stage_of(stage).run(params)
        yield folder, rows


def test_every_prompt_keeps_its_columns(project):
    folder, rows = project
    for name in ("train", "dev", "test"):
        for row in pd.read_parquet(folder / f"data/valid/{name}.parquet").itertuples():
            expected = rows.loc[row.text]
            assert {
                "goal": row.text,
                "BehaviorID": expected["BehaviorID"],
                "category": expected["category"],
                "difficulty": int(expected["difficulty"]),
            } == json.loads(row.metadata)


def test_rollouts_hold_three_runs_of_each_prompt_and_its_columns(project):
    folder, _ = project
    graphs = read_rollouts(folder / "data/rollouts/rollouts.parquet")

    assert [0, 1, 2] * 4 == [graph.run_id for graph in graphs]
    assert {3} == set(Counter(graph.prompt.prompt_id for graph in graphs).values())
    # Four prompts, each a number and not its spelling.
    assert {1} == {graph.prompt.metadata["difficulty"] for graph in graphs}
    said = {tuple(node.probe_ids for node in graph.nodes()) for graph in graphs}
    assert len(said) == len(graphs)
    report = json.loads((folder / "reports/rollouts.json").read_text())
    assert (4, True) == (report["num_prompts"], report["checks"]["success"])


def test_the_sampler_chose_by_a_column(project):
    assert (0, {1}) in SEEN
    assert (1, {1, 2}) in SEEN


def test_the_reward_saw_a_column(project):
    folder, _ = project
    for graph in read_rollouts(folder / "data/evaluation/attacker.parquet"):
        is_paid = graph.prompt.metadata["category"] == "fraud"
        assert {is_paid} == {node.reward > BONUS - 3.0 for node in graph.nodes()}
        assert 0 == graph.run_id


def test_attack_success_is_reported_by_category(project):
    folder, rows = project
    record = read_evaluation(folder / "reports/evaluation.json")
    test = pd.read_parquet(folder / "data/valid/test.parquet")
    counts = Counter(rows.loc[text, "category"] for text in test["text"])

    assert counts == {name: own.num_prompts for name, own in record.categories.items()}
    assert record.num_prompts == sum(counts.values())
    rates = [(own.num_prompts, own.attacker.value) for own in record.categories.values()]
    whole = sum(count * rate for count, rate in rates) / record.num_prompts
    assert record.rate().value == pytest.approx(whole)
    assert all(isinstance(own.lift, Interval) for own in record.categories.values())
    page = (folder / "reports/examples.md").read_text()
    assert all(f"\n| {name} | {count} | " in page for name, count in counts.items())
    lines = "\n".join(evaluation_lines(record))
    assert all(f"{name} ({count} prompts): " in lines for name, count in counts.items())


@pytest.mark.wide
def test_the_parts_of_the_test_keep_their_contracts():
    check_sampler(Curriculum)
    check_reward(Fraudulent)
