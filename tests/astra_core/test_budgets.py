"""Budgets and other ends of a run: kept to the update, and what was learned last is examined."""

import shutil

import pytest
from tiny_training import assert_same_state, configured, trainer_of, weights_of

from astra_core.errors import CheckpointError
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.trainer import Progress, Trainer

AMID = {
    "training_steps": 9,
    "epochs_per_experience": 3,
    "eval_every": 5,
    "metric": "eval/kl_nats",
    "checkpoint": {"save_every": 2, "keep": 1},
}
"""Three updates and more from an experience, and evaluations far apart."""


def ended(folder, *, budget, **changes):
    """A run that a budget ended: its trainer, and the weights after each of its updates."""
    config = configured(**{**AMID, "early_stopping": budget, **changes})
    trainer = trainer_of(config, folder)
    return trainer, [weights_of(trainer) for _ in trainer.steps()]


@pytest.mark.real
def test_a_budget_is_asked_before_every_update_and_its_last_weights_are_examined(tmp_path):
    trainer, weights = ended(tmp_path, budget={"max_optimizer_steps": 4})
    progress = trainer.progress

    assert 4 == progress.step == len(weights)
    assert "4 optimiser steps are done" == progress.stopped_because
    assert progress.is_partial
    assert [0, 4] == [point.step for point in progress.evaluations]
    # They are the farthest from the reference, and so the best by this metric.
    assert weights[-1] == weights_of(trainer)
    assert progress.training_step == trainer.best.training_step == trainer.store.newest().step


@pytest.mark.real
def test_a_budget_that_an_experience_just_fills_cuts_nothing_short(tmp_path):
    changes = {"epochs_per_experience": 1, "batch_size": 64}
    trainer, _ = ended(tmp_path, budget={"max_optimizer_steps": 2}, **changes)

    assert not trainer.progress.is_partial
    assert [(0, 0), (2, 2)] == [(p.training_step, p.step) for p in trainer.progress.evaluations]


@pytest.mark.real
def test_nothing_is_learned_from_an_experience_that_has_left_the_reference(tmp_path):
    trainer, weights = ended(tmp_path, budget={"max_kl_nats": 1e-4})
    progress = trainer.progress

    assert "KL to the reference" in progress.stopped_because
    assert 0 < progress.step == progress.evaluations[-1].step == len(weights)
    assert progress.training_step == trainer.best.training_step == 1
    # The second experience was met, and the reward remembers it: no longer run comes through here.
    assert progress.is_partial
    assert "step_000001_part" in [path.name for path in tmp_path.iterdir()]


def test_what_has_been_examined_is_not_examined_again(tmp_path):
    trainer, weights = ended(tmp_path, budget={"max_seconds": 1e-6})

    assert [] == weights
    assert [0] == [point.step for point in trainer.progress.evaluations]


class Fickle(Trainer):
    """Has a rule of its own."""

    def end(self):
        return super().end() or ("enough" if self.progress.training_step == 2 else "")


@pytest.mark.real
def test_the_attacker_is_examined_whatever_ends_the_run(tmp_path):
    plain = trainer_of(configured(**AMID))
    trainer = Fickle(
        plain.config,
        plain.sampler,
        plain.algorithm,
        evaluator=plain.evaluator,
        store=CheckpointStore(tmp_path),
    )
    trainer.train()

    assert "enough" == trainer.progress.stopped_because
    assert [0, 2] == [point.training_step for point in trainer.progress.evaluations]
    assert 2 == trainer.best.training_step


@pytest.mark.real
def test_a_run_that_is_resumed_past_its_budget_is_examined_first(tmp_path):
    for report in trainer_of(configured(**AMID), tmp_path).steps():
        if report.training_step == 3:
            break
    trainer = trainer_of(configured(**AMID, early_stopping={"max_optimizer_steps": 1}), tmp_path)
    trainer.resume()

    assert [] == list(trainer.steps())
    assert [0, 2] == [point.training_step for point in trainer.progress.evaluations]
    assert 2 == trainer.best.training_step
    assert trainer.progress == Progress.of(trainer.store.newest().record)


BOUND = {**AMID, "early_stopping": {"max_optimizer_steps": 5}}
"""The budget ends the run amid its second experience."""


@pytest.mark.real
def test_a_run_that_a_budget_ends_amid_an_experience_continues_after_any_update(tmp_path):
    whole = trainer_of(configured(**BOUND), tmp_path / "whole")
    num_updates = len(list(whole.steps()))
    assert whole.progress.is_partial
    for killed_after in range(1, num_updates + 1):
        folder = tmp_path / f"cut_{killed_after}"
        for report in trainer_of(configured(**BOUND), folder).steps():
            if report.step == killed_after:
                break
        resumed = trainer_of(configured(**BOUND), folder)
        resumed.resume()
        resumed.train()

        assert weights_of(whole) == weights_of(resumed)
        assert whole.progress == resumed.progress
        assert_same_state(whole.store.newest(), resumed.store.newest())


@pytest.mark.real
@pytest.mark.parametrize("budget", [{"max_optimizer_steps": 4}, {"max_kl_nats": 1e-4}])
def test_a_run_that_gets_a_larger_budget_ends_like_one_that_had_it(tmp_path, budget):
    config = {**BOUND, "training_steps": 3, "checkpoint": {"save_every": 1, "keep": 1}}
    first = trainer_of(configured(**{**config, "early_stopping": budget}), tmp_path / "run")
    first.train()
    assert first.progress.is_partial
    longer = trainer_of(configured(**{**config, "early_stopping": {}}), tmp_path / "run")
    longer.resume()
    longer.train()
    whole = trainer_of(configured(**{**config, "early_stopping": {}}), tmp_path / "whole")
    whole.train()

    assert weights_of(whole) == weights_of(longer)
    assert whole.progress == longer.progress
    assert_same_state(whole.store.newest(), longer.store.newest())


@pytest.mark.real
def test_a_run_without_a_whole_checkpoint_cannot_get_a_larger_budget(tmp_path):
    trainer_of(configured(**BOUND), tmp_path).train()
    for path in tmp_path.glob("step_*"):
        if not path.name.endswith("_part"):
            shutil.rmtree(path)
    longer = trainer_of(configured(**{**BOUND, "early_stopping": {}}), tmp_path)

    with pytest.raises(CheckpointError, match="must have a whole one beside it"):
        longer.resume()
