from each_row import each_row
from tiny_training import choice, configured

from astra_core.training.resume.prolonging import has_same_rates


def same(kind, *, steps=3, done=3, **changes):
    schedule = choice("transformers", kind=kind)
    config = configured(training_steps=9, schedule=schedule, **changes)
    return has_same_rates(config, training_steps=steps, num_done=done)


@each_row("kind", ["constant", "constant_with_warmup", "inverse_sqrt"])
@each_row("warmup_steps", [1, 2])
def test_a_schedule_of_the_step_alone_has_the_rates_it_had(kind, warmup_steps):
    assert same(kind, warmup_steps=warmup_steps)


@each_row("kind", ["cosine", "linear", "polynomial"])
def test_a_schedule_that_looks_ahead_has_others(kind):
    assert not same(kind)
    assert same(kind, steps=9)


def test_annealing_does_not_look_ahead():
    config = configured(training_steps=9, schedule=choice("annealing", rate=0.2))

    assert has_same_rates(config, training_steps=3, num_done=3)


def test_rates_that_differ_only_later_do_not_count():
    # While it warms up, the rates are those of any length.
    assert same("linear", warmup_steps=6, done=4)
    assert not same("linear", warmup_steps=2, done=4)
    # The rate of the next step is in force already.
    assert not same("linear", warmup_steps=1, done=1)


def test_a_schedule_that_follows_evaluations_is_not_prolonged_unseen():
    plateau = {"name": "plateau", "options": {"metric": "eval/attack_success_rate"}}
    config = configured(training_steps=6, schedule=plateau)

    assert not has_same_rates(config, training_steps=3, num_done=3)
    assert has_same_rates(config, training_steps=6, num_done=3)


def test_the_schedule_of_any_agent_counts():
    ahead = {"presser": {"schedule": choice("transformers", kind="cosine")}}
    config = configured(training_steps=9, agents=ahead)

    assert not has_same_rates(config, training_steps=3, num_done=3)
    assert has_same_rates(configured(training_steps=9), training_steps=3, num_done=3)
