"""What the guides do with loops, optimisers and schedules, through the training stage."""

from pathlib import Path

import pytest
import torch

from astra_core.models.language_model import LanguageModel
from astra_core.training.harness import Experience, Harness
from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.trainer import Trainer
from astra_parts.presets import hf_configuration
from astra_parts.testing import check_optimizer, check_schedule, check_trainer
from tasks.params.schema import read_params

MINE = __name__
ONE_STEP = {"training_steps": 1, "evaluate": "none", "algorithm": "reinforce"}

# Section 6.3 of ASTRA-RL's guide, filled in: nothing of it knows more than the guide says.
GUIDE = """
import os

import torch
from astra_core.config import Count, Section
from astra_core.training.trainer import Trainer


class MyTrainer(Trainer):
    class Options(Section):
        eval_every: Count = 1
        ckpt_dir: str = "checkpoints"

    def __init__(self, config, environment, algorithm, dev_prompts=None, **parts):
        super().__init__(config, environment, algorithm, **parts)
        self.dev_prompts = dev_prompts or []
        os.makedirs(self.options.ckpt_dir, exist_ok=True)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)

    def _save_hf(self, step):
        folder = os.path.join(self.options.ckpt_dir, str(step))
        self.sampler.system.attacker.save_pretrained(folder)
        self.sampler.system.attacker.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def _eval_dev(self, step, tag="dev"):
        self.evaluate()
        return self.progress.evaluations[-1].metrics["eval/score_mean"]

    def train(self):
        passes = 0
        for step in range(1, self.config.training_steps + 1):
            for batch in self.harness.experience():
                passes += 1
                loss, step_logs = self.harness.step(batch)
                (loss / self.config.gradient_accumulation_steps).backward()
                assert "policy_kl_nats" in step_logs
                if passes % self.config.gradient_accumulation_steps == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            self.scheduler.step()
            if step % self.options.eval_every == 0:
                self._eval_dev(step)
                self._save_hf(step)
"""


@pytest.mark.row(2)
@pytest.mark.row(8)
@pytest.mark.row(11)
@pytest.mark.row(12)
@pytest.mark.row(15)
@pytest.mark.row(16)
@pytest.mark.row(19)
@pytest.mark.row(21)
@pytest.mark.row(33)
def test_the_guides_whole_trainer_runs_in_the_pipeline(pipeline, plugin):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name = plugin("guide:MyTrainer", GUIDE)
    options = {"eval_every": 2, "ckpt_dir": "mine"}
    training = {"algorithm": "reinforce", "batch_size": 6, "gradient_accumulation_steps": 2}
    own = {"trainer": {"name": name, "options": options}, "training_steps": 4, "lr": 0.008}
    ran = pipeline(training={**training, **own})

    assert (0, 4) == (ran.status, ran.report["training_steps"]), ran.said
    assert ["2", "4"] == sorted(path.name for path in Path("mine").iterdir())
    model = AutoModelForCausalLM.from_pretrained("mine/4")
    assert AutoTokenizer.from_pretrained("mine/4")("you are")["input_ids"]
    assert not torch.equal(
        model.lm_head.weight, AutoModelForCausalLM.from_pretrained("mine/2").lm_head.weight
    )
    assert [0, 2, 4] == [each["training_step"] for each in ran.report["evaluations"]]
    rates = list(dict.fromkeys(float(row["train/lr"]) for row in ran.rows[1:]))
    assert [0.008, 0.004, 0.002, 0.001] == rates
    assert all(row["train/policy_kl_nats"] for row in ran.rows[1:])


@pytest.mark.row(4)
@pytest.mark.row(13)
def test_a_run_has_defaults_of_its_own_and_takes_the_guides(pipeline):
    names = ("lr", "batch_size", "optimizer", "gradient_accumulation_steps")
    own = dict(zip(names, (3e-4, 32, "adamw", 1), strict=True))
    given, left_out = (
        pipeline(training=ONE_STEP | own),
        pipeline(training=ONE_STEP, without=names),
    )
    guide = dict(zip(names, (3e-3, 16, "adamw", 1), strict=True))
    theirs = pipeline(training=ONE_STEP | guide)
    preset = hf_configuration(**ONE_STEP, require_signal=False).model_dump(mode="json")
    small = pipeline(training=preset)

    assert [0, 0, 0] == [ran.status for ran in (given, left_out, small)]
    assert {"0.003"} == {row["train/lr"] for row in theirs.rows[1:]}
    assert given.report["run_key"] == left_out.report["run_key"] != small.report["run_key"]
    assert {"1e-05"} == {row["train/lr"] for row in small.rows[1:]}
    pipeline(training={"lr": -1.0}, without=("training_steps", "num_episodes_per_experience"))
    written = Path("params.yaml").read_text("utf-8").replace("lr: -1.0", "lr: 1.0")
    Path("params.yaml").write_text(written, "utf-8")
    training = read_params(Path("params.yaml")).training
    assert (6, 16) == (training.training_steps, training.num_episodes_per_experience)


class NAdam(OptimizerPlugin):
    """An optimiser of torch that is not built in."""

    def optimizer(self, groups, lr):
        return torch.optim.NAdam(groups, lr=lr)


@pytest.mark.row(5)
@pytest.mark.row(6)
@pytest.mark.row(7)
def test_each_optimiser_of_params_trains_its_own_way(pipeline):
    names = ("adam", "adamw", "sgd", "rmsprop", "adagrad", f"{MINE}:NAdam")
    ran = [pipeline(training={**ONE_STEP, "optimizer": name}) for name in names]
    unknown = pipeline(training={**ONE_STEP, "optimizer": "adamv"})

    assert 6 == len({each.report["checkpoint_digest"] for each in ran})
    assert 2 == unknown.status
    assert "'adamv'; built-ins are ['adagrad', 'adam', 'adamw'" in unknown.line


@pytest.mark.row(34)
def test_in_the_pipeline_two_passes_of_four_are_one_of_eight(pipeline):
    def weights(batch_size, passes):
        sizes = {"batch_size": batch_size, "gradient_accumulation_steps": passes, "lr": 0.01}
        assert 0 == pipeline(training={**ONE_STEP, **sizes}).status
        model = LanguageModel.load(Path("models/attacker")).model
        return torch.cat([weight.detach().flatten() for weight in model.parameters()])

    assert torch.allclose(weights(8, 1), weights(4, 2), rtol=0, atol=1e-3 * 0.01)


@pytest.mark.row(1)
@pytest.mark.row(14)
@pytest.mark.row(80)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"evaluate": "every", "eval_every": 1}, [0, 1, 2]),
        ({"evaluate": "first"}, [0]),
        ({"evaluate": "last"}, [2]),
        ({"evaluate": "first_and_last"}, [0, 2]),
        ({"evaluate": "none"}, []),
    ],
)
def test_the_pipeline_evaluates_when_it_is_asked_to(pipeline, changes, expected):
    ran = pipeline(training={"training_steps": 2, **changes})

    assert expected == [each["training_step"] for each in ran.report["evaluations"]]
    assert list(Path("runs").glob("*/checkpoints/step_*"))


@pytest.mark.row(23)
@pytest.mark.parametrize("scheme", ["first_and_last", "last", "none"])
def test_patience_that_cannot_end_a_run_is_told(pipeline, scheme):
    ran = pipeline(training={**ONE_STEP, "evaluate": scheme, "early_stopping": {"patience": 2}})

    told = [line for line in ran.said if "early_stopping.patience of 2 ends nothing" in line]
    assert (0, 1) == (ran.status, len(told)), ran.said


class Noting(Trainer):
    """Writes down which of its hooks are called."""

    def told(self, word):
        with Path("hooks.txt").open("a", encoding="utf-8") as file:
            file.write(f"{word}\n")

    def examine(self, evaluator):
        self.told("examine")
        return super().examine(evaluator)

    def windows(self, experience):
        self.told("windows")
        return super().windows(experience)

    def save(self):
        self.told("save")
        super().save()

    def end(self):
        self.told("end")
        return super().end()


@pytest.mark.row(18)
def test_the_pipeline_calls_each_hook_of_the_loop(pipeline):
    ran = pipeline(training={"training_steps": 1, "trainer": {"name": f"{MINE}:Noting"}})

    assert 0 == ran.status, ran.said
    assert {"examine", "windows", "save", "end"} == set(Path("hooks.txt").read_text().split())


class Once(Harness):
    """An experience that comes from elsewhere."""

    def experience(self, iteration=None, *, graphs=None):
        rolled = super().experience(iteration, graphs=graphs)
        return Experience(rolled.iteration, rolled.graphs, rolled.steps, {"rollout/own": 1.0}, 0.0)


class OtherData(Trainer):
    """Drives a harness of its own by hand."""

    def __init__(self, *arguments, **parts):
        super().__init__(*arguments, **parts)
        self.harness = Once(self.sampler, self.algorithm, num_episodes=2)

    def train(self):
        experience = self.harness.experience()
        for batch in self.harness.batches(experience, epoch=0, batch_size=4):
            loss, _ = self.harness.step(batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


@pytest.mark.row(36)
@pytest.mark.row(85)
def test_the_pipeline_drives_a_harness_of_ones_own(pipeline):
    ran = pipeline(training={**ONE_STEP, "trainer": {"name": f"{MINE}:OtherData"}})

    assert (0, 1) == (ran.status, ran.report["training_steps"]), ran.said
    assert {"1.0"} == {row["rollout/own"] for row in ran.rows[1:]}


class Halving(SchedulePlugin):
    """Half the rate after every training step."""

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


class Rushed(Trainer):
    """One window per experience."""

    def windows(self, experience):
        yield next(super().windows(experience))


@pytest.mark.row(65)
def test_what_keeps_its_contract_trains_in_the_pipeline(pipeline):
    check_optimizer(NAdam)
    check_schedule(Halving)
    check_trainer(Rushed)
    parts = {"optimizer": NAdam, "schedule": Halving, "trainer": Rushed}
    named = {kind: {"name": f"{MINE}:{own.__name__}"} for kind, own in parts.items()}
    ran = pipeline(training={**named, "batch_size": 2, "lr": 0.004})

    assert (0, 3) == (ran.status, ran.report["optimizer_steps"]), ran.said
    assert [0.004, 0.002, 0.001] == [float(row["train/lr"]) for row in ran.rows[1:]]
