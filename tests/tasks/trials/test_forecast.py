from each_row import each_row

from astra_core.config import EvaluationConfiguration, RolloutsConfiguration
from tasks.params.schema import Params, RunTraining
from tasks.trials.forecast import Amount, TrialMeasurements, forecast, num_batches, num_evaluations

ONE = Amount(calls=6.0, tokens_in=60.0, tokens_out=12.0, seconds=0.5)
MORE = Amount(calls=12.0, tokens_in=120.0, tokens_out=24.0, seconds=0.75)
OTHER = Amount(calls=4.0, tokens_in=40.0, tokens_out=8.0, seconds=0.25)


def params(*, runs=1, **training):
    return Params(
        rollouts=RolloutsConfiguration(num_prompts=10, runs_per_prompt=runs),
        training=RunTraining(
            **{
                "training_steps": 7,
                "num_episodes_per_experience": 4,
                "batch_size": 5,
                "epochs_per_experience": 1,
                "eval_every": 3,
                **training,
            }
        ),
        evaluation=EvaluationConfiguration(
            num_prompts=20,
            num_training_prompts=8,
            strategy_calls=40,
            bandit_calls=12,
            benign_prompts=None,
        ),
    )


def measured(**changes):
    found = {"num_steps": 12, "gradient_s": 2.0, "rolls_out": True, "num_train": 100, "num_dev": 15}
    found["num_test"] = 15
    return TrialMeasurements(ONE, MORE, OTHER, **{**found, **changes})


def test_each_part_is_its_prompts_times_what_one_took():
    found = forecast(params(), measured())

    assert found["rollouts"] == ONE * 10
    # The first of seven steps learns from the rollouts stage.
    assert found["rollouts in training"] == MORE * (6 * 4)
    # Before the first step, after 3, 6 and the last, and once more of the best.
    assert found["evaluations in training"] == OTHER * (5 * 8)
    # Both attackers, on all test prompts that there are, and one where it was chosen.
    assert found["final evaluation"] == OTHER * (2 * 15 + 8)
    # What the search asks, and the winners on all test prompts.
    assert found["bandit"] == OTHER * (12 / OTHER.calls + 15)
    # For both attackers, at most.
    assert found["what makes hits hit"] == OTHER * (2 * 40 / OTHER.calls)
    # 12 steps of 4 prompts are 30 of 10: 6 batches of 5, then 3 in each of 6 steps.
    assert found["updates"] == Amount(seconds=2.0 * (6 + 6 * 3))


def test_every_run_of_a_prompt_counts():
    found, single = forecast(params(runs=3), measured()), forecast(params(), measured())

    for part in ("rollouts", "rollouts in training"):
        assert single[part] * 3 == found[part]
    assert single["final evaluation"] == found["final evaluation"]


def test_fewer_prompts_than_asked_for_are_all_there_are():
    found = forecast(params(), measured(num_train=3, num_dev=2, num_test=2))

    assert found["rollouts"] == ONE * 3
    assert found["final evaluation"] == OTHER * (4 + 2)


def test_every_other_target_hears_the_first_turns_of_both_attackers():
    own = params()
    others = {"transfer": {"stricter": {"options": {"system_prompt": "Never."}}}}
    evaluation = EvaluationConfiguration.model_validate({**own.evaluation.model_dump(), **others})
    found = forecast(own.model_copy(update={"evaluation": evaluation}), measured())
    asked = evaluation.num_rollouts * evaluation.num_responses

    assert found["final evaluation"] == OTHER * (2 * 15 + 8 + 2 * 15 * asked / OTHER.calls)


def test_a_trainer_without_rollouts_asks_the_target_for_none():
    found = forecast(params(), measured(rolls_out=False))

    assert found["rollouts in training"] == Amount()
    assert found["updates"] == Amount(seconds=2.0 * 7 * 3)


@each_row(
    ("changes", "count"),
    [
        ({}, 5),
        ({"eval_first": False}, 4),
        ({"eval_every": 7}, 3),
        ({"training_steps": 6}, 4),
        ({"keep": "last"}, 4),
        ({"evaluate": "first_and_last"}, 3),
        ({"evaluate": "last", "keep": "last"}, 1),
        ({"evaluate": "first"}, 1),
        ({"evaluate": "none"}, 0),
    ],
)
def test_evaluations_are_counted_as_the_trainer_makes_them(changes, count):
    assert count == num_evaluations(params(**changes))


def test_every_epoch_reads_every_batch():
    assert 3 * num_batches(params(), measured()) == num_batches(
        params(epochs_per_experience=3), measured()
    )


def test_every_harmless_request_is_one_reply(tmp_path):
    (tmp_path / "asked.csv").write_text("prompt\nwhy\nwhen\nwho\n")
    own, file = params(), tmp_path / "asked.csv"
    asked = own.evaluation.model_copy(update={"benign_prompts": file})
    asking = own.model_copy(update={"evaluation": asked})
    more = forecast(asking, measured())["final evaluation"]

    assert forecast(own, measured())["final evaluation"] + OTHER * (3 / OTHER.calls) == more
