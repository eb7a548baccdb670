"""ASTRA-RL's guide to trainers and its API page, pattern by pattern."""

import json
from pathlib import Path

import pytest
import torch
from guide_scripts import CONFIG, SMALL, TEXTS, dpo, preset, sampler_of, trained, weights_of

from astra_core import Trainer, TrainingConfiguration
from astra_core.config import Choice, Section
from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_core.training.optimization.optimizers import OptimizerPlugin
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.presets import hf_configuration, hf_trainer
from astra_parts.testing import tiny_prompts

MINE = __name__
TWO = tiny_prompts(2)


@pytest.mark.wide
@pytest.mark.row(1, "the base `Trainer` alone: no evaluation, nothing saved")
def test_the_plain_trainer_trains_and_writes_nothing(here):
    sampler = sampler_of()
    trainer = Trainer(TrainingConfiguration(**CONFIG), sampler, dpo(sampler.system))
    before = weights_of(trainer)
    trainer.train()

    assert before != weights_of(trainer)
    assert [] == trainer.progress.evaluations
    assert ["my"] == [path.name for path in here.iterdir()]


@pytest.mark.wide
@pytest.mark.row(2, "`Trainer(config=, environment=, algorithm=)`")
def test_a_trainer_is_built_by_keywords_and_environment_is_the_sampler():
    class Derived(Trainer):
        def __init__(self, config, environment, algorithm):
            super().__init__(config=config, environment=environment, algorithm=algorithm)

    sampler = sampler_of()
    parts = {"config": TrainingConfiguration(**CONFIG), "algorithm": dpo(sampler.system)}
    next(Trainer(environment=sampler, **parts).steps())

    assert sampler is Derived(environment=sampler, **parts).sampler


@pytest.mark.wide
@pytest.mark.row(3, '`TrainingConfiguration(optimizer="adamw")`')
def test_a_choice_without_options_is_a_word():
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


@pytest.mark.wide
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


@pytest.mark.wide
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


@pytest.mark.wide
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


@pytest.mark.wide
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


@pytest.mark.wide
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


@pytest.mark.wide
@pytest.mark.row(14, "`HFASTTrainer(config, dev_prompts=, eval_every=, ckpt_dir=)`")
def test_the_preset_says_where_the_guides_other_keywords_go():
    with pytest.raises(ConfigurationError, match="got environment=; give it attacker, target and"):
        hf_trainer(config=None, environment="env", algorithm="solver", dev_prompts=TEXTS)
    with pytest.raises(ConfigurationError, match="must get an attacker, a target and prompts"):
        hf_trainer(dev_prompts=TEXTS, ckpt_dir="checkpoints")


@pytest.mark.wide
@pytest.mark.row(14)
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


@pytest.mark.wide
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
