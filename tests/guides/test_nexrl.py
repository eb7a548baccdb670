"""NexRL's guide to custom trainers, pattern by pattern."""

import math
from dataclasses import dataclass, fields

import pytest
import torch
from each_row import each_row
from guide_scripts import SHORT, SMALL, Marked, preset, sampler_of, weights_of
from played_service import PlayedService

from astra_core import Trainer, TrainingConfiguration
from astra_core.algorithms.credit import can_teach
from astra_core.algorithms.dpo import DPO
from astra_core.config import NonNegative
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import ConfigurationError
from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_parts.algorithms.policy_batch import PolicyStep
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.testing import (
    check_algorithm,
    check_optimizer,
    check_schedule,
    check_trainer,
    tiny_graph,
    tiny_node,
    tiny_system,
)

MINE = __name__


class Loop(Trainer):
    """One update per experience, whatever the batches."""

    def steps(self):
        while self.progress.training_step < self.config.training_steps:
            experience = self.harness.experience(self.progress.training_step)
            yield self.update(next(self.windows(experience)), experience)
            self.progress.training_step += 1
            self.evaluate()
            self.save()
        self.progress.stopped_because = "done"
        self.restore_best()


@pytest.mark.row(40, "`BaseTrainer`: a loop of one's own")
def test_an_own_loop_runs_in_the_pipeline(pipeline):
    ran = pipeline(training={"trainer": {"name": f"{MINE}:Loop"}})

    assert (0, 3, 3) == (ran.status, ran.report["training_steps"], ran.report["optimizer_steps"])


class Custom(REINFORCE):
    """Advantages of its own, a field of its own, and options of its own."""

    class Options(REINFORCE.Options):
        my_param: NonNegative = 0.5
        use_custom_advantage: bool = True

    def flatten_all(self, graphs):
        if not self.options.use_custom_advantage:
            return super().flatten_all(graphs)
        turns = [node for graph in graphs for node in graph.nodes() if can_teach(node)]
        return [PolicyStep(node, node.reward * self.options.my_param) for node in turns]

    def collate(self, steps):
        batch = super().collate(steps)
        depths = torch.tensor([len(step.node.path) for step in steps])
        return Marked(*(getattr(batch, field.name) for field in fields(batch)), depths)

    def step(self, batch):
        loss, logs = super().step(batch)
        return loss, {
            **logs,
            "advantage_mean": float(batch.advantages.mean()),
            "depth": float(batch.depths.float().mean()),
        }


@pytest.mark.wide
@pytest.mark.row(41, "`_prepare_batch`: advantages and batch fields of one's own")
def test_own_advantages_and_fields_reach_the_loss(here):
    check_algorithm(Custom)
    trainer = preset(algorithm={"name": f"{MINE}:Custom", "options": {"my_param": 2.0}})
    other = preset(algorithm={"name": f"{MINE}:Custom", "options": {"use_custom_advantage": False}})
    metrics = [report.metrics for report in trainer.steps()]

    assert all(figures["train/depth"] >= 1.0 for figures in metrics)
    assert metrics != [report.metrics for report in other.steps()]


@dataclass(frozen=True, slots=True)
class TokenRewards:
    """A step with a number for each token of the probe."""

    node: object
    advantages: tuple[float, ...]


class LastToken(REINFORCE):
    """The reward lies at the last token that is trained; the others get none."""

    def flatten_all(self, graphs):
        turns = [node for graph in graphs for node in graph.nodes() if can_teach(node)]
        return [TokenRewards(node, _at_the_end(node)) for node in turns]


def _at_the_end(node):
    last = max(place for place, is_trained in enumerate(node.probe_mask) if is_trained)
    return tuple(node.reward * (place == last) for place in range(len(node.probe_ids)))


@pytest.mark.row(42, "token-level rewards, at the last trained token")
def test_a_reward_at_the_last_token_moves_only_its_row_there():
    algorithm = LastToken(LastToken.Options(), system=tiny_system(1))
    node = tiny_node(0.9, probe_ids=(2, 3, 4, 0), probe_mask=(True, True, True, False))
    batch = algorithm.collate(algorithm.flatten_all([tiny_graph(node)]))

    assert [[0.0, 0.0, pytest.approx(0.9), 0.0]] == batch.advantages.tolist()
    assert torch.isfinite(algorithm.step(batch)[0])


@pytest.mark.row(43, "padding is removed")
def test_a_batch_is_as_wide_as_its_longest_row_and_no_pad_is_learned_from():
    algorithm = REINFORCE(REINFORCE.Options(baseline="none"), system=tiny_system(1))
    short, long = tiny_node(0.9, probe_ids=(2, 0)), tiny_node(0.5, probe_ids=(2, 3, 4, 0))
    steps = algorithm.flatten(tiny_graph(short, long))
    both, alone = algorithm.collate(steps), algorithm.collate(steps[:1])

    assert (4, 2) == (both.mask.shape[1], alone.mask.shape[1])
    parts = sum(float(algorithm.step(algorithm.collate([step]))[0].detach()) for step in steps)
    assert math.isclose(float(algorithm.step(both)[0].detach()), parts, rel_tol=1e-4)


RECIPE = """
from astra_core.training.trainer import Trainer


class MyCustomTrainer(Trainer):
    def end(self):
        return super().end() or "of the recipe"
"""

GRPO = """
from astra_parts.algorithms.grpo import GRPO
from . import rules


class MyGRPO(GRPO):
    rule = rules.RULE
"""


@pytest.mark.row(44, "a trainer registered by its file (`custom_trainer_module_path`)")
def test_a_trainer_is_named_by_its_file(pipeline, world):
    (world / "recipe/my_task").mkdir(parents=True, exist_ok=True)
    (world / "recipe/my_task/my_trainer.py").write_text(RECIPE, "utf-8")
    ran = pipeline(training={"trainer": {"name": "recipe/my_task/my_trainer.py:MyCustomTrainer"}})

    assert "of the recipe" == ran.report["stopped_because"]


@pytest.mark.row(45, "a module outside `plugins/`, whose edits are seen")
def test_an_edit_outside_plugins_is_another_run(pipeline, world):
    (world / "lab").mkdir(exist_ok=True)
    (world / "lab/mine.py").write_text(GRPO, "utf-8")
    keys = set()
    for rule in ("one", "two"):
        (world / "lab/rules.py").write_text(f"RULE = '{rule}'", "utf-8")
        ran = pipeline(training={"algorithm": {"name": "lab/mine.py:MyGRPO"}})
        keys.add(ran.report["run_key"])

    assert 2 == len(keys)


@pytest.mark.row(46, "`config.algorithm` with keys of one's own")
def test_own_keys_are_read_and_unknown_ones_refused(pipeline):
    known = pipeline(
        training={"algorithm": {"name": f"{MINE}:Custom", "options": {"my_param": 1.0}}}
    )
    wrong = pipeline(
        training={"algorithm": {"name": f"{MINE}:Custom", "options": {"my_parm": 1.0}}}
    )

    assert (0, 2) == (known.status, wrong.status)
    assert "my_param" in wrong.line


class Weaver(RemoteTrainer):
    """A client of one's own in place of the one of the Tinker protocol."""

    service = None

    @classmethod
    def connected(cls, *_, **__):
        return cls.service


REMOTE = {
    "algorithm": {"name": "grpo", "options": {"clip_high": 0.28}},
    "max_grad_norm": None,
    "kl": {"max_per_experience_nats": None},
    "training_steps": 2,
}
SERVED = {"address": "http://127.0.0.1:1", "base_model": "tiny", "export": False}
UNHELD = {"probe": {"max_new_tokens": 6, "min_new_tokens": 0}}


@pytest.mark.row(47, "`RemoteApiTrainer`: Tinker, Weaver")
def test_a_service_samples_and_learns_in_the_pipeline(pipeline, monkeypatch):
    service = PlayedService(seed=3)
    monkeypatch.setattr(Weaver, "service", service)
    trainer = {"name": f"{MINE}:Weaver", "options": SERVED}
    ran = pipeline(training={**REMOTE, "trainer": trainer}, system=UNHELD)

    assert (0, 2) == (ran.status, ran.report["training_steps"]), ran.said
    assert service.asked["update"] == ran.report["optimizer_steps"] > 0
    assert service.asked["draw"] > 0


@pytest.mark.row(47)
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"max_grad_norm": 1.0}, "max_grad_norm"),
        ({"algorithm": "dpo"}, "got DPO"),
        ({"optimizer": "sgd"}, "optimizer"),
    ],
)
def test_what_a_service_would_drop_is_refused(here, changes, names):
    """NexRL sends weight decay, clipping and entropy to Tinker, where they are lost."""
    settings = {**REMOTE, **changes, "trainer": {"name": "remote", "options": SERVED}}
    unheld = SHORT.model_copy(update={"min_new_tokens": 0})
    system = SMALL.system.model_copy(update={"probe": unheld})
    assembly = SMALL.model_copy(update={"system": system})
    with pytest.raises(ConfigurationError, match=names):
        preset(assembly, **settings)


@pytest.mark.row(64, "a unit test with a batch made by hand")
def test_a_batch_made_by_hand_is_enough_for_a_unit_test():
    algorithm = Custom(Custom.Options(my_param=0.5), system=tiny_system(1))
    graph = tiny_graph(tiny_node(0.4), tiny_node(0.8))
    steps = algorithm.flatten_all([graph])
    loss, logs = algorithm.step(algorithm.collate(steps))

    assert [0.2, 0.4] == [pytest.approx(step.advantage) for step in steps]
    assert math.isclose(0.3, logs["advantage_mean"], rel_tol=1e-6)
    assert loss.requires_grad


class NAdam(OptimizerPlugin):
    """An optimiser of torch that is not built in."""

    def optimizer(self, groups, lr):
        return torch.optim.NAdam(groups, lr=lr)


class Halving(SchedulePlugin):
    """Half the rate at half time."""

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.StepLR(optimizer, training_steps // 2 or 1, gamma=0.5)


class Rushed(Trainer):
    """One window per experience."""

    def windows(self, experience):
        yield next(super().windows(experience))


class Forgetting(OptimizerPlugin):
    """Ignores the rate it is given."""

    def optimizer(self, groups, lr):
        return torch.optim.SGD([weight for group in groups for weight in group["params"]], lr=0.0)


@pytest.mark.wide
@pytest.mark.row(65, "contracts for a trainer, an optimiser, a schedule of one's own")
def test_there_is_a_contract_for_each():
    check_optimizer(NAdam)
    check_schedule(Halving)
    check_trainer(Rushed)
    with pytest.raises(AssertionError):
        check_optimizer(Forgetting)


@pytest.mark.row(66, "an integration test of two steps")
def test_two_steps_are_a_setting(pipeline):
    ran = pipeline(training={"training_steps": 2, "trainer": {"name": f"{MINE}:Loop"}})

    assert (0, 2) == (ran.status, ran.report["training_steps"])


class Broken(Trainer):
    def windows(self, experience):
        return experience.no_such_thing


@pytest.mark.row(67, "errors of a class of one's own are clear")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{MINE}:Broken", "AttributeError"),
        (f"{MINE}:Missing", "must be importable"),
        ("plugins.no_such:Mine", "must be importable"),
        (f"{MINE}:Custom", "must be a subclass of astra_core.training.trainer.Trainer"),
    ],
)
def test_a_mistake_is_one_line_with_its_name(pipeline, name, words):
    ran = pipeline(training={"trainer": {"name": name}})

    assert 2 == ran.status
    assert name in ran.line
    assert words in ran.line


class Preference(DPO):
    """DPO with a loss of its own."""

    def step(self, batch):
        from astra_core.algorithms.pairs import preference_loss

        def losses(chosen, rejected):
            return (1.0 - (chosen - rejected)).clamp(min=0.0)

        return preference_loss(
            self.system, batch, losses, beta=self.options.beta, length_normalised=False
        )


class ActorCritic(REINFORCE):
    """A2C: the advantage is the reward minus the mean, over log-probabilities of its own."""

    def step(self, batch):
        logprobs = token_logprobs(self.system.attacker.model, batch.rows)
        losses = -batch.advantages * logprobs * batch.mask
        return losses.sum(), {"actor": float(losses.detach().sum())}


@pytest.mark.wide
@pytest.mark.row(68, "PPO, A2C and DPO as algorithms of one's own")
@each_row("algorithm", [Preference, ActorCritic])
def test_a_known_algorithm_written_anew_trains(algorithm):
    system = tiny_system(1)
    config = TrainingConfiguration(training_steps=1, num_episodes_per_experience=2, lr=0.01)
    options = {"margin": 0.0} if algorithm is Preference else {}
    trainer = Trainer(
        config, sampler_of(system), algorithm(algorithm.Options(**options), system=system)
    )
    before = weights_of(trainer)
    trainer.train()

    assert before != weights_of(trainer)


@pytest.mark.row(57, "metrics of one's own appear")
def test_an_own_metric_is_in_the_table_and_at_the_tracker(pipeline, world):
    from mlflow import MlflowClient

    ran = pipeline(training={"algorithm": {"name": f"{MINE}:Custom"}})
    client = MlflowClient(f"sqlite:///{world}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "red-team-training"]
    newest = client.search_runs([experiment.experiment_id], max_results=1)[0]

    assert len(ran.rows) > 1
    assert all(row["train/advantage_mean"] for row in ran.rows[1:])
    assert "train/advantage_mean" in newest.data.metrics
