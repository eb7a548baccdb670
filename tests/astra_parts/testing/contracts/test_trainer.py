import math

import pytest
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_core.training.trainer import Trainer
from astra_parts.testing import check_trainer
from plugins.thorough import ThoroughTrainer


# Those that train at a service need one, which their own tests start.
@pytest.mark.real
@each_row(
    "name", sorted(BUILT_INS["trainer"].keys() - {"leader_follower", "remote", "text", "vllm"})
)
def test_every_built_in_trainer_keeps_the_contract(name):
    check_trainer(name)


@pytest.mark.real
def test_the_example_keeps_the_contract_with_its_options():
    check_trainer(ThoroughTrainer, algorithm="dpo", num_hardest=2, widen_every=1)


class _Silent(Trainer):
    def steps(self):
        self.evaluate()
        self.progress.stopped_because = "nothing to do"
        yield from ()


class _Chatty(Trainer):
    def steps(self):
        for report in super().steps():
            yield report.row()


class _Endless(Trainer):
    def steps(self):
        while True:
            for report in super().steps():
                last = report
            yield last


class _Unexamined(Trainer):
    def evaluate(self):
        pass


class _Undeclared(Trainer):
    metric_names = ("eval/own",)


class _Blind(Trainer):
    def examine(self, evaluator):
        return {**super().examine(evaluator), self.config.metric: math.nan}


class _Unexplained(Trainer):
    def steps(self):
        yield from super().steps()
        self.progress.stopped_because = ""


class _Frozen(Trainer):
    def update(self, window, experience, *, is_first=True):
        before = {k: v.clone() for k, v in self.sampler.system.attacker.model.state_dict().items()}
        report = super().update(window, experience, is_first=is_first)
        self.sampler.system.attacker.model.load_state_dict(before)
        return report


class _TouchesTheReference(Trainer):
    def end(self):
        next(iter(self.sampler.system.reference.model.parameters())).data.add_(1.0)
        return super().end()


class _Unrepeatable(Trainer):
    runs = 0

    def steps(self):
        type(self).runs += 1
        self.config = self.config.model_copy(update={"training_steps": 1 + self.runs})
        yield from super().steps()


class _Forgetful(Trainer):
    """Learns from fewer windows as time passes, and keeps the time to itself."""

    count = 0

    def windows(self, experience):
        self.count += 1
        yield from list(super().windows(experience))[: 3 - self.count]


class _Rash(Trainer):
    """Its dry run is no dry run."""

    def dry_run(self):
        next(iter(self.sampler.system.attacker.model.parameters())).data.add_(0.1)
        return super().dry_run()


@pytest.mark.real
@each_row(
    ("trainer", "promise"),
    [
        (_Silent, "a report per update, got none"),
        (_Chatty, "yields StepReports, got dict"),
        (_Endless, "counted from 1|steps ends"),
        (_Unexamined, "evaluates at least once"),
        (_Undeclared, "got none of .'eval/own'."),
        (_Blind, "must give a finite eval/attack_success_rate"),
        (_Unexplained, "says why it ended"),
        (_Frozen, "updates change the attacker"),
        (_TouchesTheReference, "target and reference stay"),
        (_Unrepeatable, "a run can be repeated"),
        (_Forgetful, "cut off ends like one that was not"),
        (_Rash, "dry_run changes no weight"),
    ],
)
def test_a_trainer_that_breaks_a_promise_is_reported_with_it(trainer, promise):
    with pytest.raises(AssertionError, match=promise):
        check_trainer(trainer)
