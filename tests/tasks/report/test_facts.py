from dataclasses import replace

from report_material import material

from tasks.report.facts import attack_facts, cost, data_gates, lineage


def test_what_was_attacked_names_target_judge_and_prompts():
    told = dict(attack_facts(material()))

    assert told["Target"].startswith("builtin, 2222222222222222")
    assert "profanity, success at 0.5" == told["Judge"]
    assert "builtin, 40 test prompts" == told["Prompts"]
    assert "4 rollouts per prompt, 2 turns deep" == told["Conversation"]


def test_the_cost_counts_each_experience_once_and_names_what_a_target_took():
    told = dict(cost(material()))
    used = replace(material().training, target={"calls": 12.0, "cost": 0.5})
    paid = dict(cost(material(training=used)))

    assert "16 in training" == told["Turns rolled out"]
    assert "175" == told["Tokens learned from"]
    assert told["Time"].startswith("1 min 15 s")
    assert told["Money"].startswith("none")
    assert "calls 12, cost 0.5" == paid["Target in training"]
    assert "Money" not in paid


def test_the_replies_of_training_and_of_the_bandit_stand_side_by_side():
    own = material()
    steps = own.steps.assign(**{"rollout/num_replies": 3 * own.steps["rollout/num_nodes"]})
    untrained = {**own.evaluation.baseline, "bandit_calls": 5824.0}
    searched = replace(own, steps=steps, evaluation=replace(own.evaluation, baseline=untrained))
    label = "Replies, the first rollouts included"

    assert label not in dict(cost(own))
    assert "48 for training, 5,824 for the bandit" == dict(cost(searched))[label]


def test_the_lineage_has_a_digest_of_each_part():
    told = dict(lineage(material()))

    assert "data/valid, d1d1d1d1d1d1d1d1, 40 rows, DVC 4f1c.dir" == told["Valid"]
    assert "commit c0ffeec0ffeec0ff, with changes that were not committed" == told["Code"]
    assert "version 1" == told["Parents"]
    assert "torch 2.13" == told["Libraries"]
    assert {"Prompts checked": "9, of which 2 rejected"} == dict(data_gates(material()))
