import json

from tasks.params.schema import Params
from tasks.reporting.workload import cost_of_a_reply, replies_by_stage

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
                "sampler": {"name": "tree", "options": {"tree_depth": 3}},
            },
            "training": {"training_steps": 5, "num_episodes_per_experience": 4},
            "evaluation": {"num_prompts": 30, "num_training_prompts": 8},
        }
    )
)


def reports(folder, **rollouts):
    made = {"rollouts": folder / "rollouts.json", "validation": folder / "validation.json"}
    made["rollouts"].write_text(json.dumps(ROLLOUTS | rollouts), "utf-8")
    sizes = {"train": 15, "dev": 5, "test": 10}
    made["validation"].write_text(json.dumps({"splits": sizes}), "utf-8")
    return made


def test_replies_are_turns_of_trees_and_of_examined_conversations(tmp_path):
    found = replies_by_stage(PARAMS, **reports(tmp_path))

    # Six turns of a tree in the last report, and no more prompts than there are.
    assert 6 * 15 == found["rollouts"]
    # Four further experiences of four trees; evaluations have three turns of a conversation.
    assert 0 == (found["training"] - 6 * 4 * 4) % (3 * 5)
    assert 0 == (found["evaluation"] - 3 * 2 * 10) % (3 * 5)


def test_without_reports_a_tree_is_a_conversation_and_there_are_prompts_enough(tmp_path):
    nothing = {"rollouts": tmp_path / "none.json", "validation": tmp_path / "neither.json"}

    assert 3 * 20 == replies_by_stage(PARAMS, **nothing)["rollouts"]


def test_the_price_of_a_reply_is_that_of_the_last_rollouts(tmp_path):
    priced = reports(tmp_path, target={"calls": 50.0, "cost": 2.5})

    assert 0.05 == cost_of_a_reply(priced["rollouts"])
    assert cost_of_a_reply(reports(tmp_path, target=None)["rollouts"]) is None
    assert cost_of_a_reply(tmp_path / "none.json") is None
