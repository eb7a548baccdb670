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
from guide_scripts import FAST, SMALL, TEXTS, preset, sampler_of, weights_of

from astra_core import Harness, System, Trainer, TrainingConfiguration
from astra_core.algorithms.credit import can_teach
from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.policy import PolicyStep
from astra_core.algorithms.reinforce import REINFORCE
from astra_core.config import Choice, Count, Section
from astra_core.errors import ConfigurationError
from astra_core.presets import hf_configuration, hf_trainer
from astra_core.registry import resolve
from astra_core.sampler import rolled_out
from astra_core.samplers.tree import TreeSampler
from astra_core.sink import Sink
from astra_core.target import Answer, Reply, Surroundings, Target
from astra_core.testing import (
    check_algorithm,
    check_sampler,
    check_target,
    tiny_prompts,
    tiny_system,
)
from astra_core.training.optimizers import OptimizerPlugin, SchedulePlugin

CONFIG = {"training_steps": 2, "num_episodes_per_experience": 2, "batch_size": 4, "lr": 0.01}
MINE = __name__
TWO = tiny_prompts(2)


def dpo(system):
    return DPO(DPO.Options(margin=0.0), system=system)


def trained(own=Trainer, sampler=None, **changes):
    """The attacker's weights after a training of the plain kind."""
    sampler = sampler or sampler_of()
    config = TrainingConfiguration(**CONFIG | changes)
    trainer = own(config, sampler, dpo(sampler.system))
    trainer.train()
    return weights_of(trainer)


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
    ran = pipeline(training={"evaluate": "none"})

    assert 0 == ran.status
    assert [] == ran.report["evaluations"]


class UntilDull(Trainer):
    """Ends once it has been evaluated twice."""

    def end(self):
        return super().end() or ("seen twice" if len(self.progress.evaluations) > 1 else "")


@pytest.mark.row(23, "early stopping after x evaluations without improvement")
def test_patience_ends_the_run(pipeline):
    rule = {"patience": 1, "min_delta": 1e6}
    ran = pipeline(training={"training_steps": 5, "eval_every": 1, "early_stopping": rule})

    assert 1 == ran.report["training_steps"]


@pytest.mark.row(24, "early stopping by a rule of one's own")
def test_an_own_rule_ends_the_run(pipeline):
    ran = pipeline(training={"eval_every": 1, "trainer": {"name": f"{MINE}:UntilDull"}})

    assert "seen twice" == ran.report["stopped_because"]


@pytest.mark.row(25, "early stopping by a budget keeps what was learned")
def test_a_budget_ends_with_an_evaluation_of_what_was_learned(pipeline):
    rule = {"max_optimizer_steps": 4}
    ran = pipeline(training={"eval_every": 50, "batch_size": 2, "early_stopping": rule})

    assert 4 == ran.report["optimizer_steps"]
    assert [0, 4] == [each["step"] for each in ran.report["evaluations"]]


class Halving(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


@pytest.mark.row(26, "the schedule's state lies beside the checkpoints")
def test_a_resumed_run_goes_on_at_its_rate(here):
    halving = {"name": f"{MINE}:Halving"}
    preset(schedule=halving, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(schedule=halving, training_steps=3, checkpoint={"save_every": 1})

    assert again.resume()
    rates = {report.training_step: report.lr for report in again.steps()}
    assert {2: FAST["lr"] / 2, 3: FAST["lr"] / 4} == rates


@pytest.mark.row(27, "a PyTorch schedule of one's own")
def test_an_own_schedule_moves_the_rate(pipeline):
    rows = pipeline(training={"schedule": {"name": f"{MINE}:Halving"}, "lr": 0.008}).rows[1:]

    assert [0.008, 0.004, 0.002] == sorted({float(row["train/lr"]) for row in rows})[::-1]


class Plateau(SchedulePlugin):
    metric = "eval/attack_success_rate"

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=0, factor=0.5, threshold=9.0
        )


@pytest.mark.row(28, "a schedule that follows a metric (`ReduceLROnPlateau`)")
def test_a_schedule_that_follows_the_metric_lowers_the_rate(pipeline):
    plateau = {"name": f"{MINE}:Plateau"}
    ran = pipeline(training={"schedule": plateau, "eval_every": 1, "training_steps": 4})

    assert 1 < len({row["train/lr"] for row in ran.rows[1:]})


class Counting(REINFORCE):
    """Counts the experiences it has seen."""

    count = 0

    def remember(self, graphs):
        self.count += 1
        return {**super().remember(graphs), "count": float(self.count)}

    def state(self):
        return {**super().state(), "count": torch.tensor(self.count)}

    def load_state(self, state):
        super().load_state(state)
        self.count = int(state["count"])


@pytest.mark.row(29, "state of an algorithm of one's own is saved")
def test_an_algorithms_own_state_goes_on(here):
    counting = {"name": f"{MINE}:Counting"}
    preset(algorithm=counting, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(algorithm=counting, checkpoint={"save_every": 1})
    again.resume()

    assert {2.0} == {report.metrics["train/count"] for report in again.steps()}


class Remembering(Trainer):
    """Has a number of its own to keep."""

    level = 0

    def examine(self, evaluator):
        self.level += 1
        return super().examine(evaluator)

    def state(self):
        return {"level": torch.tensor(self.level)}

    def load_state(self, state):
        self.level = int(state["level"])


@pytest.mark.row(30, "state of a trainer of one's own is saved")
def test_a_trainers_own_state_goes_on(here):
    mine = {"name": f"{MINE}:Remembering"}
    preset(trainer=mine, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(trainer=mine, checkpoint={"save_every": 1})
    again.resume()

    assert again.level >= 2


@pytest.mark.row(31, "logging to W&B or elsewhere")
def test_a_script_sends_every_report_where_it_likes(here):
    sent = []
    progress = preset().train(on_step=lambda report: sent.append(report.metrics))

    assert progress.step == len(sent)


class Noted(Sink):
    """Notes each step and its loss in a file."""

    def write(self, figures, step):
        with Path("noted.txt").open("a", encoding="utf-8") as file:
            file.write(f"{step}\n" if "train/loss" in figures else "")


@pytest.mark.row(31)
def test_the_pipeline_sends_every_report_where_params_say(pipeline):
    ran = pipeline(tracking={"sinks": ["mlflow", f"{MINE}:Noted"]})
    steps = Path("noted.txt").read_text("utf-8").split()

    assert [str(step + 1) for step in range(ran.report["optimizer_steps"])] == steps


@pytest.mark.row(32, "seeds of torch and of the environment")
def test_a_seed_decides_the_rollouts():
    def said(seed):
        harness = Harness(sampler_of(seed=seed), dpo(tiny_system(1)), num_episodes=2)
        graphs = harness.experience(0).graphs
        return [node.probe_text for graph in graphs for node in graph.nodes()]

    assert said(1) == said(1) != said(2)


@pytest.mark.row(33, "the final attacker and its tokenizer are saved")
def test_the_attacker_is_saved_in_the_guides_words(here):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    system = tiny_system(1)
    system.attacker.save_pretrained("final_ckpt")
    system.attacker.tokenizer.save_pretrained("final_ckpt")
    model = AutoModelForCausalLM.from_pretrained("final_ckpt")

    assert all(map(torch.equal, model.parameters(), system.attacker.model.parameters()))
    assert AutoTokenizer.from_pretrained("final_ckpt")("why")["input_ids"]


@pytest.mark.row(34, "batches and accumulation are the same update")
def test_two_passes_of_four_are_one_of_eight():
    def weights(batch_size, passes):
        own = trained(batch_size=batch_size, gradient_accumulation_steps=passes, training_steps=1)
        return torch.frombuffer(bytearray(own), dtype=torch.float32)

    # An update of Adam is as large as the rate, whatever the gradient; sums differ in the last bit.
    assert torch.allclose(weights(8, 1), weights(4, 2), rtol=0, atol=1e-3 * CONFIG["lr"])


@pytest.mark.row(35, "DPO with `ASTProblem` and `ASTSampler`")
def test_the_example_of_the_api_page_trains(here):
    folders = {"attacker": Path("my/attacker"), "target": Path("my/target")}
    system = System.load(SMALL.system, **folders, reference=Path("my/attacker"), is_trained=True)
    trainer = Trainer(
        TrainingConfiguration(**{**CONFIG, "lr": 1e-3}),
        sampler_of(system),
        DPO(DPO.Options(beta=0.1, margin=0.0), system=system),
    )

    assert trainer.train().step > 0


@pytest.mark.row(36, "full control through the `Harness`")
def test_a_harness_alone_gives_experience_and_batches():
    sampler = sampler_of()
    algorithm = dpo(sampler.system)
    harness = Harness(sampler, algorithm, num_episodes=2)
    optimizer = torch.optim.AdamW(sampler.system.attacker.model.parameters(), 0.01)
    before = [p.detach().clone() for p in sampler.system.attacker.model.parameters()]
    for batch in harness.batches(harness.experience(0), epoch=0, batch_size=4):
        loss, _ = algorithm.step(batch)
        (loss / batch.weight).backward()
        optimizer.step()
        optimizer.zero_grad()

    after = sampler.system.attacker.model.parameters()
    assert not all(map(torch.equal, before, after))


class Parrot(Target):
    """A target without a model: it says what it was told."""

    def digest(self):
        return "parrot"

    def respond(self, conversations, keys, generation, *, tokens_per_batch=16384):
        return [
            Answer(
                (Reply(conversation.messages[-1].text[-generation.max_new_tokens :]),) * len(own)
            )
            for conversation, own in zip(conversations, keys, strict=True)
        ]


@pytest.mark.row(37, "a System, or a target, of one's own")
def test_a_target_of_ones_own_keeps_the_contract_and_talks():
    plain = tiny_system(1)
    parrot = Parrot(Section(), surroundings=Surroundings(plain.config))
    check_target(parrot)
    own = System.of(
        plain.attacker, parrot, plain.reference, scorer=plain.scorer, config=plain.config
    )
    sampler = sampler_of(own)
    nodes = [node for graph in rolled_out(sampler, TWO, iteration=0) for node in graph.nodes()]

    assert nodes
    assert all(node.probe_text.endswith(reply) for node in nodes for reply in node.response_texts)


@pytest.mark.row(37)
def test_a_target_of_ones_own_is_named_in_params():
    resolve("target", f"{MINE}:Parrot")


class Backwards(TreeSampler):
    """Prompts in the opposite order."""

    def episodes(self, iteration, count):
        return super().episodes(iteration, count)[::-1]


@pytest.mark.row(38, "a sampler of one's own")
def test_an_own_sampler_keeps_the_contract_and_runs(pipeline):
    check_sampler(Backwards)
    plain = pipeline()
    ran = pipeline(rollouts={"sampler": {"name": f"{MINE}:Backwards", "options": {}}})

    assert 0 == ran.status
    assert plain.report["checkpoint_digest"] != ran.report["checkpoint_digest"]


class Imitation(REINFORCE):
    """Learns from every probe alike."""

    def flatten_all(self, graphs):
        turns = [node for graph in graphs for node in graph.nodes()]
        return [PolicyStep(node, 1.0) for node in turns if can_teach(node)]


@pytest.mark.row(39, "an algorithm of one's own")
def test_an_own_algorithm_trains_in_the_pipeline(pipeline):
    ran = pipeline(training={"algorithm": {"name": f"{MINE}:Imitation"}})

    assert 0 == ran.status
    assert ran.report["optimizer_steps"] > 0
    check_algorithm(Imitation)
