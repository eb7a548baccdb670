"""A loop written by hand is counted; tests of whole runs are beside, in test_driving.py."""

from dataclasses import replace

import pytest
import torch
from each_row import each_row
from tiny_training import Ready, configured, trainer_of, weights_of

from astra_core.errors import ConfigurationError
from astra_core.training.harness import Harness


@pytest.fixture
def trainer():
    return trainer_of(configured(), is_evaluated=False, sampler=Ready)


def learn(trainer, batch):
    loss, logs = trainer.harness.step(batch)
    loss.backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    return logs


def test_an_experience_is_counted_when_its_last_batch_was_taken(trainer):
    batches = iter(trainer.harness.experience())
    learn(trainer, next(batches))
    trainer.save()

    assert 0 == trainer.progress.training_step
    for batch in batches:
        learn(trainer, batch)
    assert 1 == trainer.progress.training_step


def test_an_experience_without_batches_taken_is_counted_when_it_is_saved(trainer):
    experience = trainer.harness.experience()
    for window in trainer.windows(experience):
        trainer.update(window, experience)

    assert 0 == trainer.progress.training_step
    trainer.save()
    assert 1 == trainer.progress.training_step


def test_a_named_iteration_is_counted_by_nobody(trainer):
    for batch in trainer.harness.experience(0):
        learn(trainer, batch)
    trainer.save()

    assert 0 == trainer.progress.training_step


def test_steps_that_were_counted_twice_are_reported(trainer):
    for batch in trainer.harness.experience():
        learn(trainer, batch)
    trainer.progress.training_step += 1

    with pytest.raises(ConfigurationError, match="must count training steps once"):
        trainer.harness.experience()


def test_the_schedule_moves_with_each_experience():
    trainer = trainer_of(configured(schedule="annealing"), is_evaluated=False, sampler=Ready)
    rates = []
    for _ in range(2):
        for batch in trainer.harness.experience():
            learn(trainer, batch)
        rates.append(trainer.updates.schedule.get_last_lr()[0])

    assert rates[0] > rates[1]


def test_the_first_rollouts_are_the_first_experience():
    graphs = tuple(trainer_of(configured()).harness.experience(0).graphs)
    trainer = trainer_of(configured(), is_evaluated=False, first_graphs=graphs)

    assert graphs == trainer.harness.experience().graphs
    assert graphs != trainer.harness.experience().graphs


def test_a_named_iteration_is_reported_too(trainer):
    heard = []
    trainer.reports.to(heard.append)
    experience = trainer.harness.experience(4)
    for batch in trainer.harness.batches(experience, epoch=0, batch_size=4):
        learn(trainer, batch)
    trainer.reports.flush()

    assert {5} == {report.training_step for report in heard}
    assert trainer.progress.step == len(heard)


@each_row(
    "changes",
    [
        {"max_grad_norm": 1e-3, "optimizer": "sgd"},
        {"parts": {"all": {"pattern": "layers", "active": "never"}}},
        {"max_update_share": 0.2},
    ],
)
def test_clipping_and_frozen_parts_hold_by_hand_too(changes):
    plain, own = (trainer_of(configured(**changes), sampler=Ready) for _ in range(2))
    experience = plain.harness.experience(0)
    for window in plain.windows(experience):
        plain.update(window, experience)
    for batch in own.harness.experience():
        learn(own, batch)

    assert weights_of(plain) == weights_of(own)
    assert weights_of(own) != weights_of(trainer_of(configured()))


def test_an_optimiser_alone_makes_no_report(trainer):
    heard = []
    trainer.reports.to(heard.append)
    trainer.optimizer.step()
    trainer.reports.flush()

    assert ([], 0) == (heard, trainer.progress.step)


def test_figures_of_an_update_are_means_over_its_batches():
    trainer, heard, seen = (
        trainer_of(configured(batch_size=1), is_evaluated=False, sampler=Ready),
        [],
        [],
    )
    trainer.reports.to(heard.append)
    batches = iter(trainer.harness.experience())
    for batch in (next(batches), next(batches)):
        loss, logs = trainer.harness.step(batch)
        seen.append((float(loss.detach()), logs, batch))
        (loss / 2).backward()
    norm = torch.nn.utils.get_total_norm(
        [p.grad for p in trainer.sampler.system.attacker.model.parameters() if p.grad is not None]
    )
    trainer.optimizer.step()
    trainer.reports.flush()

    (report,) = heard
    assert report.loss == pytest.approx(sum(loss for loss, _, _ in seen) / 2)
    assert report.grad_norm == pytest.approx(float(norm))
    assert report.num_tokens == sum(batch.num_tokens for _, _, batch in seen)
    # Movements are means over probes; see test_movement.
    for name in (name for name in seen[0][1] if not name.startswith("moved_")):
        mean = sum(logs[name] for _, logs, _ in seen) / 2
        assert report.metrics[f"train/{name}"] == pytest.approx(mean)


def test_gradient_checkpointing_gives_the_same_gradients_by_hand():
    def gradients(**changes):
        trainer = trainer_of(configured(**changes), is_evaluated=False, sampler=Ready)
        trainer.harness.step(next(iter(trainer.harness.experience())))[0].backward()
        return [p.grad for p in trainer.sampler.system.attacker.model.parameters()]

    one, other = gradients(), gradients(gradient_checkpointing=True)
    for some, others in zip(one, other, strict=True):
        assert torch.allclose(some, others, atol=1e-6)


def test_a_schedule_of_the_loops_own_has_the_last_word():
    trainer = trainer_of(configured(lr=0.01, training_steps=3), is_evaluated=False, sampler=Ready)
    own = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1, gamma=0.5)
    rates = []
    for _ in range(3):
        for batch in trainer.harness.experience():
            learn(trainer, batch)
        own.step()
        rates.append(trainer.optimizer.param_groups[0]["lr"])

    assert [0.005, 0.0025, 0.00125] == rates


def test_two_schedules_are_refused():
    schedule = {"name": "transformers", "options": {"kind": "linear"}}
    trainer = trainer_of(configured(schedule=schedule), is_evaluated=False, sampler=Ready)
    own = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1, gamma=0.5)
    for batch in trainer.harness.experience():
        learn(trainer, batch)
    own.step()

    with pytest.raises(ConfigurationError, match=r"one schedule, got training\.schedule 'transf"):
        list(trainer.harness.experience())


def test_an_optimiser_of_the_loops_own_is_refused_with_the_way_out():
    trainer = trainer_of(configured(), is_evaluated=False, sampler=Ready)

    with pytest.raises(ConfigurationError, match=r"name it in training\.optimizer"):
        trainer.optimizer = torch.optim.SGD(trainer.sampler.system.parameters(), lr=0.1)


def test_without_one_the_configured_schedule_moves():
    schedule = {"name": "transformers", "options": {"kind": "linear"}}
    config = configured(lr=0.01, training_steps=2, schedule=schedule)
    trainer = trainer_of(config, is_evaluated=False, sampler=Ready)
    for batch in trainer.harness.experience():
        learn(trainer, batch)

    assert pytest.approx(0.005) == trainer.optimizer.param_groups[0]["lr"]


def test_an_optimiser_of_ones_own_makes_no_update(trainer):
    own = torch.optim.SGD(trainer.sampler.system.attacker.model.parameters(), lr=0.25)
    for batch in trainer.harness.experience():
        trainer.harness.step(batch)[0].backward()
        own.step()

    assert 0 == trainer.progress.step


class Told(Harness):
    """An experience of its own, with a figure."""

    def experience(self, iteration=None, *, graphs=None):
        rolled = super().experience(iteration, graphs=graphs)
        return replace(rolled, metrics={**rolled.metrics, "rollout/own": 1.0})


@pytest.mark.parametrize("is_iterated", [True, False])
def test_the_figures_of_a_harness_of_ones_own_are_those_that_are_told(trainer, is_iterated):
    heard = []
    trainer.reports.to(heard.append)
    trainer.harness = Told(trainer.sampler, trainer.algorithm, num_episodes=2)
    experience = trainer.harness.experience()
    batches = trainer.harness.batches(experience, epoch=0, batch_size=4)
    for batch in experience if is_iterated else batches:
        learn(trainer, batch)
    trainer.reports.flush()

    assert heard
    assert {1.0} == {report.metrics["rollout/own"] for report in heard}
