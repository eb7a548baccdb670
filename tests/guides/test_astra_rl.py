"""ASTRA-RL's guide to trainers and its API page, pattern by pattern."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from guide_project import left
from guide_scripts import CONFIG, SMALL, TEXTS, dpo, preset, sampler_of, trained, weights_of

from astra_core import Trainer, TrainingConfiguration
from astra_core.algorithms.reinforce import REINFORCE
from astra_core.config import Choice, Count, Section
from astra_core.errors import ConfigurationError
from astra_core.presets import hf_configuration, hf_trainer
from astra_core.samplers.tree import TreeSampler
from astra_core.testing import (
    tiny_prompts,
)
from astra_core.training.optimization.optimizers import OptimizerPlugin

MINE = __name__
TWO = tiny_prompts(2)


@pytest.mark.row(1, "the base `Trainer` alone: no evaluation, nothing saved")
def test_the_plain_trainer_trains_and_writes_nothing(here):
    sampler = sampler_of()
    trainer = Trainer(TrainingConfiguration(**CONFIG), sampler, dpo(sampler.system))
    before = weights_of(trainer)
    trainer.train()

    assert before != weights_of(trainer)
    assert [] == trainer.progress.evaluations
    assert ["my"] == [path.name for path in here.iterdir()]


@pytest.mark.row(2, "`Trainer(config=, environment=, algorithm=)`")
def test_a_trainer_is_built_by_keywords_and_environment_is_told_its_name():
    sampler = sampler_of()
    parts = {"config": TrainingConfiguration(**CONFIG), "algorithm": dpo(sampler.system)}
    Trainer(sampler=sampler, **parts).train()

    with pytest.raises(ConfigurationError, match="must get sampler=, got environment=") as caught:
        Trainer(environment=sampler, **parts)
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.row(3, '`TrainingConfiguration(optimizer="adamw")`')
def test_a_choice_without_options_is_a_word():
    assert TrainingConfiguration(optimizer="AdamW") == TrainingConfiguration(optimizer="adamw")
    words = TrainingConfiguration(
        lr=1e-5,
        batch_size=4,
        optimizer="adamw",
        gradient_accumulation_steps=1,
        training_steps=1000,
        num_episodes_per_experience=2,
    )

    assert Choice(name="adamw") == words.optimizer
    assert trained(optimizer="sgd") == trained(optimizer=Choice(name="sgd")) != trained()


@pytest.mark.row(3)
def test_a_word_of_params_is_the_same_run_as_the_long_form(pipeline):
    keys = {
        json.dumps(given): pipeline(training={"optimizer": given}).report["run_key"]
        for given in ("sgd", {"name": "sgd"}, {"name": "sgd", "options": {}}, "adamw")
    }

    assert 2 == len(set(keys.values()))


@pytest.mark.row(4, "the defaults 3e-3, 16, adamw, 1, 1024, 8")
def test_the_defaults_are_the_guides():
    config = TrainingConfiguration()

    assert (3e-3, 16, "adamw", 1) == (
        config.lr,
        config.batch_size,
        config.optimizer.name,
        config.gradient_accumulation_steps,
    )
    assert (1024, 8) == (config.training_steps, config.num_episodes_per_experience)


@pytest.mark.row(5, "the optimisers adam, adamw, sgd, rmsprop, adagrad")
def test_five_optimisers_train_five_ways():
    names = ("adam", "adamw", "sgd", "rmsprop", "adagrad")

    assert 5 == len({trained(optimizer=Choice(name=name), training_steps=1) for name in names})


@pytest.mark.row(6, "an unknown optimiser is a `ValueError`")
def test_an_unknown_optimiser_is_a_value_error_that_names_the_known():
    with pytest.raises(ValueError, match=r"unknown optimizer 'adamv'; built-ins are .*'adamw'"):
        trained(optimizer=Choice(name="adamv"))


class Nadam(OptimizerPlugin):
    class Options(Section):
        weight_decay: float = 0.0

    def optimizer(self, groups, lr):
        return torch.optim.NAdam(groups, lr=lr)


@pytest.mark.row(7, "an optimiser of one's own")
def test_an_optimiser_of_ones_own_trains():
    assert trained() != trained(optimizer=Choice(name=f"{MINE}:Nadam"))


@pytest.mark.row(8, "`gradient_accumulation_steps`, also of a short last window")
def test_a_short_last_window_is_applied():
    sampler = sampler_of()
    config = TrainingConfiguration(
        **{**CONFIG, "training_steps": 1, "batch_size": 1, "gradient_accumulation_steps": 4}
    )
    trainer = Trainer(config, sampler, dpo(sampler.system))
    experience = trainer.harness.experience(0)
    sizes = [len(window) for window in trainer.windows(experience)]

    assert len(experience.steps) % 4
    assert [4] * (len(experience.steps) // 4) + [len(experience.steps) % 4] == sizes
    assert len(sizes) == trainer.train().step


@pytest.mark.row(9, "`training_steps` times `num_episodes_per_experience` rollouts")
def test_every_training_step_rolls_out_its_episodes():
    class Counting(TreeSampler):
        seen = ()

        def roll_out(self, prompts, *, iteration):
            self.seen += ((iteration, len(prompts)),)
            return super().roll_out(prompts, iteration=iteration)

    plain = sampler_of()
    sampler = Counting(
        plain.options, system=plain.system, prompts=plain.prompts, reward=plain.reward, seed=1
    )
    trained(sampler=sampler, training_steps=3, num_episodes_per_experience=4)

    assert ((0, 4), (1, 4), (2, 4)) == sampler.seen


@pytest.mark.row(10, "`batch_size` reaches the batches")
def test_the_batch_size_is_that_of_the_batches():
    sampler = sampler_of()
    config = TrainingConfiguration(**{**CONFIG, "batch_size": 2})
    trainer = Trainer(config, sampler, REINFORCE(REINFORCE.Options(), system=sampler.system))
    windows = list(trainer.windows(trainer.harness.experience(0)))

    assert {2} == {len(batch.mask) for window in windows for batch in window}


@pytest.mark.row(11, "`loss, logs = harness.step(batch)` in a loop of one's own")
def test_a_hand_written_loop_is_the_trainers_own():
    class ByHand(Trainer):
        def train(self):
            for _ in range(self.config.training_steps):
                for batch in self.harness.experience():
                    loss, logs = self.harness.step(batch)
                    assert logs
                    loss.backward()
                    self.optimizer.step()
                    self.optimizer.zero_grad()

    assert trained() == trained(ByHand)


@pytest.mark.row(12, "the logs of a step are kept")
def test_the_figures_of_a_step_are_in_its_report():
    sampler = sampler_of()
    algorithm = REINFORCE(REINFORCE.Options(), system=sampler.system)
    reports = list(Trainer(TrainingConfiguration(**CONFIG), sampler, algorithm).steps())

    assert all("train/policy_kl_nats" in report.metrics for report in reports)


@pytest.mark.row(13, "`HFASTConfiguration()`")
def test_the_preset_configuration_has_the_guides_numbers():
    config = hf_configuration()

    assert (1e-5, 4, "adamw", 1000, 2) == (
        config.lr,
        config.batch_size,
        config.optimizer.name,
        config.training_steps,
        config.num_episodes_per_experience,
    )


@pytest.mark.row(14, "`HFASTTrainer(config, dev_prompts=, eval_every=, ckpt_dir=)`")
def test_the_preset_takes_the_guides_keywords(here):
    trainer = hf_trainer(
        "my/attacker",
        "my/target",
        TEXTS,
        dev_prompts=TEXTS[:2],
        eval_every=1,
        ckpt_dir="checkpoints",
        config=hf_configuration(training_steps=2),
        assembly=SMALL,
    )
    progress = trainer.train()

    assert [0, 1, 2] == [point.training_step for point in progress.evaluations]
    assert any(Path("checkpoints").iterdir())


@pytest.mark.row(15, "the best checkpoint is a folder that transformers loads")
def test_the_best_checkpoint_loads_in_transformers(here):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trainer = preset()
    trainer.train()
    folder = trainer.store.model(trainer.best.model)
    model = AutoModelForCausalLM.from_pretrained(folder)
    mine = trainer.sampler.system.attacker.model

    assert all(map(torch.equal, model.parameters(), mine.parameters()))
    assert AutoTokenizer.from_pretrained(folder)("you are")["input_ids"]


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
        super().__init__(lr=1e-5, batch_size=4, training_steps=1000)
        self.ckpt_dir = "checkpoints"


@pytest.mark.row(19)
def test_a_field_set_in_init_is_told_how_to_declare_it():
    with pytest.raises(ConfigurationError, match=r"Assigned\.ckpt_dir must be declared") as caught:
        Assigned()
    assert 1 == len(str(caught.value).splitlines())


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
