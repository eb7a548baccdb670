"""ASTRA-RL's guide to trainers: classes derived from its own, pattern by pattern."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from guide_project import left
from guide_scripts import CONFIG, dpo, preset, sampler_of, trained

from astra_core import Trainer, TrainingConfiguration
from astra_core.config import Count
from astra_core.errors import ConfigurationError

MINE = __name__


@pytest.mark.wide
@pytest.mark.row(16, "`Trainer` derived, `train()` overridden, in a script")
def test_an_own_train_is_what_a_script_calls():
    class Once(Trainer):
        def train(self):
            experience = self.harness.experience(0)
            for window in self.windows(experience):
                self.update(window, experience)

    assert trained(training_steps=1) == trained(Once, training_steps=9)


BY_HAND = """
from astra_core.training.trainer import Trainer


class {name}(Trainer):
    def train(self):
        for _ in range(self.progress.training_step, self.config.training_steps):
            for batch in self.harness.experience():
                loss, logs = self.harness.step(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            {after}
            self.evaluate()
            self.save()
"""


@pytest.mark.row(17, "`train()` overridden, named in params.yaml")
def test_an_own_train_is_what_the_pipeline_calls(pipeline, plugin):
    name = plugin("by_hand:ByHand", BY_HAND.format(name="ByHand", after=""))
    ran = pipeline(training={"trainer": {"name": name}})
    rows = ran.rows

    assert 0 == ran.status
    assert 3 == ran.report["training_steps"]
    assert [0, 1, 2, 3] == [each["training_step"] for each in ran.report["evaluations"]]
    assert [str(step) for step in range(ran.report["optimizer_steps"] + 1)] == [
        row["step"] for row in rows
    ]
    assert all(row["train/loss"] and row["train/grad_norm"] for row in rows[1:])


@pytest.mark.row(17)
def test_an_own_train_resumes_where_it_was_killed(pipeline, plugin):
    late = "self.progress.training_step == 2 and os.environ.pop('KILL', '')"
    kill = f"import os; {late} and os.kill(os.getpid(), 9)"
    name = plugin("killed:Killed", BY_HAND.format(name="Killed", after=kill))
    whole = pipeline(training={"trainer": {"name": name}})
    for made in ("runs", "models/attacker", "reports"):
        subprocess.run(["rm", "-rf", made], check=True)
    environment = {**os.environ, "KILL": "yes"}
    command = [sys.executable, "-m", "tasks", "training"]
    first = subprocess.run(command, check=False, env=environment, capture_output=True)
    second = subprocess.run(command, check=False, capture_output=True)

    assert (-signal.SIGKILL, 0) == (first.returncode, second.returncode)
    again = left(second.returncode, "")
    assert (whole.report, whole.rows) == (again.report, again.rows)


@pytest.mark.wide
@pytest.mark.row(18, "another loop by `steps()`, `examine`, `windows`, `save`, `end`")
def test_each_hook_of_the_loop_is_called(here):
    trainer = preset(trainer={"name": f"{MINE}:Hooked"})
    trainer.train()

    assert {"examine", "windows", "save", "end"} == trainer.called


class Hooked(Trainer):
    """Notes which of its hooks are called."""

    def __init__(self, *arguments, **parts):
        self.called = set()
        super().__init__(*arguments, **parts)

    def examine(self, evaluator):
        self.called.add("examine")
        return super().examine(evaluator)

    def windows(self, experience):
        self.called.add("windows")
        return super().windows(experience)

    def save(self):
        self.called.add("save")
        super().save()

    def end(self):
        self.called.add("end")
        return super().end()


class Own(TrainingConfiguration):
    """A configuration with a field of its own and another default."""

    lr: float = 0.02
    log_every: Count = 3


@pytest.mark.wide
@pytest.mark.row(19, "`MyConfig(TrainingConfiguration)` with fields of its own")
def test_a_derived_configuration_has_its_own_fields(here):
    config = Own(**{**CONFIG, "lr": 0.01}, log_every=7)
    sampler = sampler_of()
    trainer = Trainer(config, sampler, dpo(sampler.system))
    trainer.train()

    assert (7, 0.02) == (trainer.config.log_every, Own().lr)
    with pytest.raises(ValueError, match="log_every"):
        Own(log_every=0)


class Assigned(TrainingConfiguration):
    """As the guide has it: fields are set after the others."""

    def __init__(self):
        super().__init__(lr=1e-5, batch_size=4, optimizer="adamw", training_steps=1000)
        self.eval_every = 100
        self.ckpt_dir = "checkpoints"


@pytest.mark.row(19)
def test_a_field_set_in_init_is_the_configurations_and_later_is_refused():
    config = Assigned()
    copied = config.model_copy(update={"precision": "bf16"})

    assert (100, "checkpoints") == (copied.eval_every, copied.ckpt_dir)
    assert 100 == config.model_dump()["eval_every"]
    with pytest.raises(ConfigurationError, match=r"Assigned\.ckpt_dir must be declared") as caught:
        config.ckpt_dir = "later"
    assert 1 == len(str(caught.value).splitlines())

    class Wrong(Assigned):
        def __init__(self):
            super().__init__()
            self.eval_every = 0

    with pytest.raises(ConfigurationError, match=r"eval_every: input should be greater than"):
        Wrong()


class TwoSets(Trainer):
    """Evaluates a second list of prompts too."""

    metric_names = ("eval/second",)

    def examine(self, evaluator):
        figures = super().examine(evaluator)
        return {**figures, "eval/second": 2 * figures["eval/score_mean"]}


@pytest.mark.row(20, "an evaluation of one's own (`_eval_dev`)")
def test_an_own_figure_of_the_evaluation_chooses_the_best(pipeline):
    ran = pipeline(training={"trainer": {"name": f"{MINE}:TwoSets"}, "metric": "eval/second"})

    assert 0 == ran.status
    assert "eval/second" == ran.report["best"]["metric"]
    assert all(
        each["eval/second"] == 2 * each["eval/score_mean"] for each in ran.report["evaluations"]
    )


class Keeping(Trainer):
    """Keeps every model as a folder that any tool reads."""

    def save(self):
        super().save()
        self.sampler.system.attacker.save(Path(f"my/kept/{self.progress.training_step}"))


@pytest.mark.wide
@pytest.mark.row(21, "saving of one's own (`_save_hf`)")
def test_own_saving_happens_with_every_checkpoint(here):
    preset(trainer={"name": f"{MINE}:Keeping"}, checkpoint={"save_every": 1}).train()

    assert ["0", "1", "2"] == sorted(path.name for path in Path("my/kept").iterdir())


@pytest.mark.row(22, "a trainer without evaluation, in the pipeline")
def test_a_trainer_without_evaluation_exports_its_last_weights(pipeline):
    lasts = [
        pipeline(training={"evaluate": "none", "training_steps": steps}).report for steps in (1, 2)
    ]
    shown = pipeline(training={"keep": "last", "training_steps": 2}).report

    assert [[], []] == [last["evaluations"] for last in lasts]
    digests = [each["checkpoint_digest"] for each in (*lasts, shown)]
    assert digests[0] != digests[1] == digests[2]
