"""A trainer with a ``train`` of its own is driven like any other, and told what it left out."""

import functools
import json
import math

import pytest
import torch
from each_row import each_row, wide_but
from tiny_training import Ready, configured, trainer_of, weights_of

from astra_core.errors import AstraError, PluginError
from astra_core.samplers.tree import TreeSampler
from astra_core.training.driving import drive
from astra_core.training.trainer import Trainer

CONFIG = {"training_steps": 3, "eval_every": 1}


class ByHand(Trainer):
    def train(self):
        for _ in range(self.progress.training_step, self.config.training_steps):
            for batch in self.harness.experience():
                loss, _ = self.harness.step(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.evaluate()
            self.save()


class ByWindows(Trainer):
    def train(self):
        while self.progress.training_step < self.config.training_steps:
            experience = self.harness.experience()
            for window in self.windows(experience):
                self.update(window, experience)
            self.evaluate()
            self.save()


class ByIteration(Trainer):
    def train(self):
        while self.progress.training_step < self.config.training_steps:
            experience = self.harness.experience(
                self.progress.training_step,
                graphs=None if self.progress.training_step else self._first_graphs,
            )
            for window in self.windows(experience):
                self.update(window, experience)
            self.updates.move_schedule()
            self.progress.training_step += 1
            self.evaluate()
            self.save()


class Around(Trainer):
    """Does something before and after the usual loop."""

    def train(self, on_step=None):
        return super().train(on_step)


class BySteps(Trainer):
    def train(self):
        for _ in self.steps():
            pass


OWN = (ByHand, ByWindows, ByIteration, Around, BySteps)


def built(own, folder=None, *, sampler=TreeSampler, **changes):
    """A trainer of this class, as ``trainer_of`` builds the plain one."""
    plain = trainer_of(configured(**CONFIG | changes), folder, sampler=sampler)
    return own(
        plain.config, plain.sampler, plain.algorithm, evaluator=plain.evaluator, store=plain.store
    )


def driven(own, folder, **changes):
    trainer, heard = built(own, folder, **changes), []
    trainer.resume()
    drive(trainer, heard.append)
    return trainer, heard


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    """The trainer's own loop, and what was heard of it, with these changes: run once."""

    @functools.cache
    def once(**changes):
        return driven(Trainer, tmp_path_factory.mktemp("plain"), **changes)

    return once


@pytest.mark.real
@pytest.mark.parametrize("own", OWN)
def test_a_train_of_ones_own_ends_where_the_trainers_does(own, plainly, tmp_path):
    changes = {"epochs_per_experience": 2, "schedule": "annealing"}
    plain, expected = plainly(**changes)
    trainer, heard = driven(own, tmp_path / "own", **changes)

    assert weights_of(plain) == weights_of(trainer)
    # Nobody tells the trainer when an experience is over that is asked for by its number.
    apart = {"stopped_because": ""} | ({"moves": []} if own is ByIteration else {})
    assert plain.progress.record() | apart == trainer.progress.record() | apart
    assert [_told(report) for report in expected] == [
        pytest.approx(_told(report), rel=1e-5) for report in heard
    ]
    assert {name for report in heard for name in report.timings} == {
        name for report in expected for name in report.timings
    }


def _told(report):
    """But for what the usual loop adds when an experience is over: a loop of one's own is not told
    that, and finds it in ``progress.moves``, which is compared.
    """
    late = ("experience_nats", "experience_k1_nats", "is_cut")
    return {
        name: value
        for name, value in report.row().items()
        if name not in {f"train/{figure}" for figure in late}
    }


@pytest.mark.real
@pytest.mark.parametrize("own", OWN)
def test_every_checkpoints_updates_were_heard_of(own, tmp_path, monkeypatch):
    heard, kept = [], []
    trainer = built(own, tmp_path)
    write = trainer.store.save

    def save(checkpoint, **options):
        kept.append((checkpoint.record["step"], len(heard)))
        return write(checkpoint, **options)

    monkeypatch.setattr(trainer.store, "save", save)
    drive(trainer, heard.append)

    assert kept
    assert all(step <= count for step, count in kept)
    assert list(range(1, trainer.progress.step + 1)) == [report.step for report in heard]


@pytest.mark.real
@pytest.mark.parametrize("own", wide_but(OWN, ByHand, ByIteration, BySteps))
def test_a_run_that_was_cut_continues(own, tmp_path):
    whole, expected = driven(own, tmp_path / "whole")
    cut = built(own, tmp_path / "cut")

    class Cut(Exception):  # noqa: N818 - stands for a kill
        pass

    heard = []

    def hear(report):
        if report.training_step == 3:
            raise Cut
        heard.append(report)

    with pytest.raises((Cut, PluginError)):
        drive(cut, hear)
    again, later = driven(own, tmp_path / "cut")

    first = later[0].step
    assert weights_of(whole) == weights_of(again)
    rows = [report.row() for report in (*heard[: first - 1], *later)]
    assert [report.row() for report in expected] == rows


@pytest.mark.real
@each_row("own", [ByHand, ByWindows, Around])
def test_a_run_that_has_ended_is_not_begun_again(own, tmp_path):
    first, _ = driven(own, tmp_path)
    again, heard = driven(own, tmp_path)

    assert [] == heard
    assert weights_of(first) == weights_of(again)
    assert first.progress.record() == again.progress.record()


class TooLong(Trainer):
    def train(self):
        for _ in range(self.config.training_steps + 1):
            for batch in self.harness.experience():
                self.harness.step(batch)[0].backward()
                self.optimizer.step()


class Twice(Trainer):
    def train(self):
        for _ in range(self.config.training_steps):
            for batch in self.harness.experience():
                self.harness.step(batch)[0].backward()
                self.optimizer.step()
            self.progress.training_step += 1


class Elsewhere(Trainer):
    def train(self):
        for batch in self.harness.experience():
            self.harness.step(batch)[0].backward()
            with torch.no_grad():
                for weight in self.sampler.system.attacker.model.parameters():
                    weight.sub_(0.1 * weight.grad)


class Idle(Trainer):
    def train(self):
        pass


@each_row(
    ("own", "words"),
    [
        (TooLong, "must end after 3 training steps, got 4"),
        (Twice, "must count training steps once"),
        (Elsewhere, "must tell of its updates, got none"),
        (Idle, "must tell of its updates, got none"),
    ],
)
def test_what_a_train_of_ones_own_leaves_out_is_one_line(own, words, tmp_path):
    with pytest.raises(AstraError, match=words) as caught:
        drive(built(own, tmp_path, sampler=Ready), lambda _: None)

    assert 1 == len(str(caught.value).splitlines())
    assert own.__name__ in str(caught.value)


def test_a_gradient_that_is_no_number_is_left_out_by_hand_too(tmp_path):
    class Broken(ByHand):
        def train(self):
            for batch in self.harness.experience():
                loss, _ = self.harness.step(batch)
                (loss * float("nan")).backward()
                self.optimizer.step()

    trainer, heard = built(Broken, tmp_path, sampler=Ready), []
    before = weights_of(trainer)
    drive(trainer, heard.append)

    assert before == weights_of(trainer)
    assert all(report.is_skipped for report in heard)
    assert len(heard) == trainer.progress.num_nonfinite
    assert json.dumps(trainer.progress.record())


def test_windows_by_hand_are_one_report_each(tmp_path):
    class Pairs(Trainer):
        def train(self):
            for number, batch in enumerate(self.harness.experience()):
                loss, _ = self.harness.step(batch)
                (loss / 2).backward()
                if number % 2:
                    self.optimizer.step()
                    self.optimizer.zero_grad()

    trainer, heard = built(Pairs, tmp_path, sampler=Ready, batch_size=1), []
    num_steps = len(built(Pairs, sampler=Ready).harness.experience(0).steps)
    drive(trainer, heard.append)

    assert num_steps // 2 == len(heard)
    assert all(math.isfinite(report.loss) and report.grad_norm > 0.0 for report in heard)
