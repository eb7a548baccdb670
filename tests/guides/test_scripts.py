"""What the guides' classes do in the pipeline, in a script: tiny models, and nothing but Python."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from guide_scripts import SHORT, SMALL, preset, weights_of
from played_service import PlayedService

from astra_core.algorithms.credit import can_teach
from astra_core.config import Choice, Count, NonNegative, Section
from astra_core.errors import ConfigurationError, PluginError
from astra_core.files import file_digest
from astra_core.registry import resolve
from astra_core.reward import Reward
from astra_core.samplers.tree import TreeSampler
from astra_core.training.optimization.optimizers import SchedulePlugin
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.policy_batch import PolicyStep
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.presets import hf_configuration, hf_trainer
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.sink import Recorder, Sink, SinkRun
from astra_parts.testing import check_reward, check_sampler

MINE = __name__
pytestmark = pytest.mark.wide


def surrounded(**parts):
    """The preset's surroundings with parts of one's own, such as ``sampler``."""
    return SMALL.model_copy(update={name: Choice(**own) for name, own in parts.items()})


class Own(Trainer):
    """A rule, a figure and a number of its own, as its options say."""

    metric_names = ("eval/second",)

    class Options(Section):
        patience: Count = 3

    def examine(self, evaluator):
        figures = super().examine(evaluator)
        return {**figures, "eval/second": 2 * figures["eval/score_mean"]}

    def end(self):
        is_over = self.progress.training_step >= self.options.patience
        return super().end() or ("seen enough" if is_over else "")


@pytest.mark.wide
@pytest.mark.row(20)
@pytest.mark.row(24)
@pytest.mark.row(69)
@pytest.mark.row(70)
def test_a_trainer_with_options_a_rule_and_a_figure_of_its_own(here):
    mine = {"name": f"{MINE}:Own", "options": {"patience": 1}}
    trainer = preset(trainer=mine, metric="eval/second", training_steps=5)
    progress = trainer.train()

    assert ("seen enough", 1) == (progress.stopped_because, progress.training_step)
    assert "eval/second" == trainer.best.metric
    assert trainer.best.value == 2 * max(
        point.metrics["eval/score_mean"] for point in progress.evaluations
    )
    assert 3 == preset(trainer=f"{MINE}:Own").options.patience
    with pytest.raises(ConfigurationError, match="patience"):
        preset(trainer={**mine, "options": {"patience": 0}})


class Plateau(SchedulePlugin):
    """Halves the rate as soon as an evaluation is no better."""

    metric = "eval/attack_success_rate"

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=0, factor=0.5, threshold=9.0
        )


@pytest.mark.wide
@pytest.mark.row(22)
@pytest.mark.row(23)
@pytest.mark.row(25)
@pytest.mark.row(28)
def test_ends_and_rates_in_a_script(here):
    dull = preset(training_steps=5, early_stopping={"patience": 1, "min_delta": 1e6})
    short = preset(
        training_steps=5, batch_size=2, eval_every=50, early_stopping={"max_optimizer_steps": 4}
    )
    blind = preset(evaluate="none")
    begun = weights_of(blind)
    rates = [report.lr for report in preset(schedule=f"{MINE}:Plateau", training_steps=3).steps()]

    assert 1 == dull.train().training_step
    assert [0, 4] == [point.step for point in short.train().evaluations]
    assert [] == blind.train().evaluations
    assert begun != weights_of(blind)
    assert 1 < len(set(rates))
    assert rates == sorted(rates, reverse=True)


class Backwards(TreeSampler):
    """Prompts in the opposite order, rolled out as a later training step would."""

    def episodes(self, iteration, count):
        return super().episodes(iteration, count)[::-1]

    def roll_out(self, prompts, *, iteration):
        graphs = super().roll_out(prompts, iteration=iteration + 100)
        return [replace(graph, iteration=iteration) for graph in graphs]


class Imitation(REINFORCE):
    """Learns from every probe alike; says how many there were."""

    class Options(REINFORCE.Options):
        my_param: NonNegative = 1.0

    def flatten_all(self, graphs):
        turns = [node for graph in graphs for node in graph.nodes() if can_teach(node)]
        return [PolicyStep(node, self.options.my_param) for node in turns]

    def step(self, batch):
        loss, logs = super().step(batch)
        return loss, {**logs, "probes": float(len(batch.mask))}


@pytest.mark.wide
@pytest.mark.row(38)
@pytest.mark.row(39)
@pytest.mark.row(46)
@pytest.mark.row(57)
@pytest.mark.row(66)
@pytest.mark.row(78)
def test_a_sampler_and_an_algorithm_of_ones_own_train(here):
    check_sampler(Backwards)
    around = surrounded(sampler={"name": f"{MINE}:Backwards", "options": {"tree_width": 3}})
    runs = {}
    for value in (0.5, 1.0):
        mine = {"name": f"{MINE}:Imitation", "options": {"my_param": value}}
        runs[value] = list(preset(around, algorithm=mine).steps())

    assert {1, 2} == {report.training_step for report in runs[1.0]}
    assert all(report.metrics["train/probes"] >= 1.0 for report in runs[1.0])
    assert runs[0.5][0].loss == pytest.approx(runs[1.0][0].loss / 2, rel=1e-4)
    with pytest.raises(ConfigurationError, match="my_param"):
        preset(algorithm={"name": f"{MINE}:Imitation", "options": {"my_parm": 1.0}})


class Loop(Trainer):
    """One update per experience, whatever the batches."""

    def steps(self):
        while self.progress.training_step < self.config.training_steps:
            experience = self.harness.experience(self.progress.training_step)
            yield self.update(next(self.windows(experience)), experience)
            self.progress.training_step += 1
        self.progress.stopped_because = "done"


@pytest.mark.wide
@pytest.mark.row(40)
def test_a_loop_of_ones_own_is_what_a_script_runs(here):
    progress = preset(trainer=f"{MINE}:Loop").train()

    assert (2, 2, "done") == (progress.step, progress.training_step, progress.stopped_because)


RECIPE = """
from astra_parts.algorithms.policy import PolicyStep
from astra_parts.algorithms.reinforce import REINFORCE
from astra_core.training.trainer import Trainer
from .my_algorithm import advantages


class MyTrainer(Trainer):
    def end(self):
        return super().end() or "of the recipe"


class MyAlgorithm(REINFORCE):
    def flatten_all(self, graphs):
        nodes = [node for graph in graphs for node in graph.nodes()]
        own = advantages([node.reward for node in nodes])
        return [PolicyStep(node, value) for node, value in zip(nodes, own)]
"""
ADVANTAGES = "def advantages(rewards):\n    return [reward * {} for reward in rewards]\n"


@pytest.mark.wide
@pytest.mark.row(44)
@pytest.mark.row(45)
@pytest.mark.row(50)
def test_files_outside_of_any_package_are_used_as_they_are_now(here):
    folder = here / "recipe/my_task"
    folder.mkdir(parents=True)
    (folder / "my_trainer.py").write_text(RECIPE, "utf-8")
    (folder / "my_algorithm.py").write_text(ADVANTAGES.format(2), "utf-8")
    own = {
        "trainer": "recipe/my_task/my_trainer.py:MyTrainer",
        "algorithm": {"name": "recipe/my_task/my_trainer.py:MyAlgorithm"},
    }
    first = preset(**own)
    losses = [next(preset(**own).steps()).loss]
    # Another process, for this file alone: a neighbour that was edited.
    shutil.copytree(folder, here / "recipe/edited")
    (here / "recipe/edited/my_algorithm.py").write_text(ADVANTAGES.format(-2), "utf-8")
    edited = {"name": "recipe/edited/my_trainer.py:MyAlgorithm"}
    shutil.rmtree("my/run")
    losses.append(next(preset(**{**own, "algorithm": edited}).steps()).loss)

    assert "of the recipe" == first.train().stopped_because
    assert losses[0] == pytest.approx(-losses[1], rel=1e-4)


class Weaver(RemoteTrainer):
    """A client of one's own in place of the one of the Tinker protocol."""

    service = None

    @classmethod
    def connected(cls, *_, **__):
        return cls.service


@pytest.mark.wide
@pytest.mark.row(47)
def test_a_service_samples_and_learns_in_a_script(here, monkeypatch):
    service = PlayedService(seed=3)
    monkeypatch.setattr(Weaver, "service", service)
    unheld = SHORT.model_copy(update={"min_new_tokens": 0})
    around = SMALL.model_copy(update={"system": SMALL.system.model_copy(update={"probe": unheld})})
    options = {"address": "http://127.0.0.1:1", "base_model": "tiny", "export": False}
    progress = preset(
        around,
        trainer={"name": f"{MINE}:Weaver", "options": options},
        algorithm={"name": "grpo", "options": {"clip_high": 0.28}},
        max_grad_norm=None,
        kl={"max_per_experience_nats": None},
    ).train()

    assert 2 == progress.training_step
    assert service.asked["update"] == progress.step > 0


class Forgetful(REINFORCE):
    """Loses the weight of its batch."""

    def collate(self, steps):
        return {"rows": super().collate(steps).rows}


@pytest.mark.wide
@pytest.mark.row(56)
@pytest.mark.row(67)
def test_a_mistake_is_one_line_in_a_script_too(here):
    with pytest.raises(PluginError, match="must give a batch whose weight and num_tokens") as lost:
        preset(algorithm=f"{MINE}:Forgetful").train()
    wrong = {"Missing": "must be importable", "Forgetful": "must be a subclass of"}
    for name, words in wrong.items():
        with pytest.raises(ConfigurationError, match=words) as caught:
            resolve("trainer", f"{MINE}:{name}")
        assert 1 == len(str(caught.value).splitlines())
    assert 1 == len(str(lost.value).splitlines())


class TwoParts(Reward):
    """The score, and a bonus for short probes; tells of both."""

    class Options(Reward.Options):
        bonus: NonNegative = 0.1

    def assign(self, graphs):
        def rewarded(node):
            short = self.options.bonus / max(len(node.probe_ids), 1)
            reward = 0.0 if node.has_failed else node.score + short
            return replace(node, reward=reward, children=tuple(map(rewarded, node.children)))

        return [replace(graph, children=tuple(map(rewarded, graph.children))) for graph in graphs]

    def remember(self, graphs):
        nodes = [node for graph in graphs for node in graph.nodes() if not node.has_failed]
        return {"score_part": sum(node.score for node in nodes) / max(len(nodes), 1)}


class Diary(Sink):
    """Notes the steps that it hears of."""

    def write(self, figures, step):
        with (self.run.folder / "diary.txt").open("a", encoding="utf-8") as file:
            file.write(f"{step} {len(figures)}\n")


@pytest.mark.wide
@pytest.mark.row(58)
@pytest.mark.row(60)
@pytest.mark.row(86)
def test_parts_of_a_reward_reach_the_reports_and_a_sink(here):
    check_reward(TwoParts)
    means = {}
    for bonus in (0.0, 1.0):
        around = surrounded(reward={"name": f"{MINE}:TwoParts", "options": {"bonus": bonus}})
        diary = Recorder(Diary(Diary.Options(), run=SinkRun("mine", Path(f"my/diary {bonus}"), {})))
        trainer = preset(around)
        trainer.train(on_step=lambda report, to=diary: to.log_step(report.row(), report.step))
        diary.finish()
        shutil.rmtree("my/run")
        first = preset(around)
        means[bonus] = next(first.steps()).metrics
        shutil.rmtree("my/run")
        steps = Path(f"my/diary {bonus}/diary.txt").read_text("utf-8").splitlines()
        assert [str(step + 1) for step in range(trainer.progress.step)] == [
            line.split()[0] for line in steps
        ]

    assert means[0.0]["reward/score_part"] == means[1.0]["reward/score_part"]
    assert means[0.0]["rollout/reward"] < means[1.0]["rollout/reward"]


@pytest.mark.wide
@pytest.mark.row(82)
@pytest.mark.row(83)
@pytest.mark.row(88)
def test_the_same_seed_saves_the_same_bytes_from_which_training_goes_on(here):
    for folder in ("first", "second"):
        trainer = preset(keep="last")
        trainer.train()
        trainer.sampler.system.attacker.save_pretrained(folder)
        # Where it is kept, and by how many threads it was computed, is no hyper-parameter.
        shutil.move("my/run", f"my/{folder}")
    saved = [file_digest(Path(folder, "model.safetensors")) for folder in ("first", "second")]
    config = hf_configuration(training_steps=1, lr=0.01, evaluate="none")
    on = hf_trainer("first", "my/target", ["why"], folder="my/on", config=config, assembly=SMALL)

    assert saved[0] == saved[1] != file_digest(Path("my/attacker/model.safetensors"))
    assert weights_of(trainer) == weights_of(on)
    on.train()
    assert weights_of(trainer) != weights_of(on)
