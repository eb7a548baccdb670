import json
from pathlib import Path

import pytest

from astra_core.config import RolloutsConfiguration
from tasks.params.schema import Params
from tasks.trials.workload import cost_of_a_reply, replies_by_stage

ROLLOUTS = {
    "num_prompts": 10,
    "num_turns": 60,
    "score_mean": 0.1,
    "success_rate": 0.1,
    "reward_mean": 0.1,
    "target_nll_mean": 1.0,
    "scorer": "s",
    "system_precision": "fp32",
    "checks": {},
}
PARAMS = Params.model_validate_json(
    json.dumps(
        {
            "rollouts": {
                "num_prompts": 20,
                "sampler": {
                    "name": "tree",
                    "options": {"tree_width": 2, "tree_depth": 3, "num_responses": 5},
                },
            },
            "training": {"training_steps": 5, "num_episodes_per_experience": 4},
            "evaluation": {
                "num_prompts": 30,
                "num_training_prompts": 8,
                "num_rollouts": 2,
                "depth": 3,
                "bandit_calls": 0,
                "benign_prompts": None,
            },
        }
    )
)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reports").mkdir()


def report(**rollouts):
    Path("reports/rollouts.json").write_text(json.dumps(ROLLOUTS | rollouts), "utf-8")
    sizes = {"train": 15, "dev": 5, "test": 10}
    Path("reports/validation.json").write_text(json.dumps({"splits": sizes}), "utf-8")


# Turns of a tree, 2 + 4 + 8, each with five replies; an evaluation has two paths of three turns.
TREE, EXAMINED = 14 * 5, 2 * 3


def test_replies_are_those_of_all_turns_of_trees_and_examined_conversations():
    report()
    found = replies_by_stage(PARAMS)

    # No more prompts than there are.
    assert TREE * 15 == found["rollouts"]
    # Four further experiences of four trees, and evaluations of five dev prompts.
    assert 0 == (found["training"] - TREE * 4 * 4) % (EXAMINED * 5)
    assert 0 == (found["evaluation"] - EXAMINED * 2 * 10) % (EXAMINED * 5)


def test_after_the_first_experience_as_many_replies_count_as_it_may_choose():
    report()
    options = {**PARAMS.rollouts.sampler.options, "max_responses": 8}
    sampler = PARAMS.rollouts.sampler.model_copy(update={"options": options})
    rollouts = PARAMS.rollouts.model_copy(update={"sampler": sampler})
    params = PARAMS.model_copy(update={"rollouts": rollouts})
    found = replies_by_stage(params)
    before = replies_by_stage(PARAMS)

    assert before["rollouts"] == found["rollouts"]
    assert 14 * (8 - 5) * 4 * 4 == found["training"] - before["training"]


def test_without_reports_there_are_prompts_enough():
    assert TREE * 20 == replies_by_stage(PARAMS)["rollouts"]


def test_a_tree_of_another_sampler_has_the_turns_of_the_last_report():
    report()
    Path("mine.py").write_text(
        "from astra_core.config import Section\n"
        "from astra_core.samplers.tree import TreeSampler\n"
        "class Mine(TreeSampler):\n    class Options(Section):\n        num_responses: int = 3\n",
        "utf-8",
    )
    other = {"sampler": {"name": "./mine.py:Mine"}, "num_prompts": 20}
    params = PARAMS.model_copy(update={"rollouts": RolloutsConfiguration.read(other, where="")})

    assert 6 * 3 * 15 == replies_by_stage(params)["rollouts"]


def test_the_price_of_a_reply_is_that_of_the_last_rollouts():
    assert cost_of_a_reply() is None
    report(target={"calls": 50.0, "cost": 2.5})
    assert 0.05 == cost_of_a_reply()
    report(target=None)
    assert cost_of_a_reply() is None


def test_an_evaluation_of_a_list_asks_each_of_its_targets():
    report()
    rules = [{"name": "scripted", "label": label} for label in "ab"]
    system = {"target": ["causal_lm", *rules]}
    record = PARAMS.model_dump(mode="json", exclude_unset=True) | {"system": system}
    record["evaluation"]["bandit_calls"] = 60
    record["evaluation"]["ask_prompts"] = False
    three = replies_by_stage(Params.model_validate_json(json.dumps(record)))
    record["system"] = {}
    one = replies_by_stage(Params.model_validate_json(json.dumps(record)))

    assert one["rollouts"] == three["rollouts"]
    # The search has its budget, however many are asked; its winners are said to all.
    assert 3 * (one["evaluation"] - 60) == three["evaluation"] - 60
