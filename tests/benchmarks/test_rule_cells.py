import json

import pytest

from benchmarks.measures.method import main
from benchmarks.rule_cells import SHIPPED, RuleCell, ceiling, params_of, prompts_of_release
from benchmarks.rule_family import RELEASE
from benchmarks.rules import Condition, RuleTarget

SAYS = Condition("says 'dog'", r".*\bdog\b", "dog")
SMALL = (
    "rollouts.num_prompts=4",
    "training.training_steps=2",
    "training.num_episodes_per_experience=2",
    "system.probe.max_new_tokens=8",
    "evaluation.num_prompts=40",
    "evaluation.num_training_prompts=4",
)
CELL = RuleCell(SHIPPED, 1, 0, "grpo", 2, SMALL)


def test_a_cell_has_the_settings_of_the_project_and_its_own():
    params = params_of(CELL)

    assert (2, "grpo", 4) == (
        params.seed,
        params.training.algorithm.name,
        params.rollouts.num_prompts,
    )
    assert 0 == params.reward.options["nll_weight"]
    assert params.training.lr == params_of(RuleCell(SHIPPED, 1, 0, "dpo", 2)).training.lr


def test_prompts_of_a_release_are_apart():
    prompts = prompts_of_release(params_of(CELL), 1)

    every = [prompt.prompt_id for own in prompts.values() for prompt in own]
    assert len(every) == len({*every})
    assert [40, 4, 200] == [len(prompts[name]) for name in ("test", "dev", "rules")]


@pytest.mark.real
def test_the_ceiling_is_what_the_target_grants_to_who_knows_the_rule():
    params = params_of(CELL)

    assert 1.0 == ceiling(RuleTarget("word", (SAYS,), None, 10), params)
    # One try after the other, each granted in seven of ten.
    assert pytest.approx(1.0 - 0.3**2, abs=0.05) == ceiling(
        RuleTarget("word", (SAYS,), None, 7), params
    )
    assert pytest.approx(0.7, abs=0.07) == ceiling(RuleTarget("order", (SAYS,), SAYS, 7), params)


@pytest.mark.real
def test_a_small_cell_is_trained_and_told(tmp_path, capsys):
    asked = ["--family", "rules", "--rules", "1", "--algorithms", "grpo", "--seeds", "1"]

    assert 0 == main([*asked, "--cache", str(tmp_path), "--set", *SMALL])

    assert "1 of 1 cells" in capsys.readouterr().out
    (kept,) = tmp_path.glob(f"shipped_model-{RELEASE}-0-grpo-*-1.json")
    found = json.loads(kept.read_text())
    assert 2 == len(found["moves"])
    assert all(move["nats"] > 0.0 for move in found["moves"])
    assert found["untrained"]["kl_nats"] < 1e-3
