"""Several agents in one loop."""

import math
from dataclasses import dataclass

import pytest
import torch
from each_row import wide_but
from tiny_agents import agents_config, agents_system, agents_trainer, changed, weights
from tiny_training import configured, sampler_of, trainer_of

from astra_core.algorithms.dpo import DPO
from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS
from astra_core.samplers.tree import TreeSampler
from astra_core.training.distribution.distributed import World
from astra_core.training.team import AgentsAlgorithm, build_algorithm, mask_others, own_means
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.testing import tiny_graph, tiny_node

OWN = {"presser": {"model": "own"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def gradients(trainer, experience, batch_size, *, epoch=0):
    """Of every agent's weights, after the steps of one experience."""
    window = list(trainer.harness.batches(experience, epoch=epoch, batch_size=batch_size))
    loss, metrics = trainer.updates.gradients(window, training_step=0)
    found = {name: weight.grad.clone() for name, weight in trainer.updates.weights().items()}
    trainer.updates.zero_grad()
    return loss, metrics, found


def assert_close(some, others):
    assert some.keys() == others.keys()
    for name, gradient in some.items():
        tolerance = 1e-4 * float(gradient.abs().max()) + 1e-9
        assert torch.allclose(gradient, others[name], atol=tolerance), name


def test_only_the_agent_that_played_is_changed_by_a_turn(folder):
    trainer = agents_trainer(folder, agents_config(**OWN), training_steps=1)
    opener, presser = trainer.sampler.system.agents
    experience = trainer.harness.experience(0)
    for name, learns, stays in (("opener", opener, presser), ("presser", presser, opener)):
        steps = [step for step in experience.steps if step.agent == name]
        assert steps
        assert {len(step.node.path) for step in steps} == {1 if name == "opener" else 2}
        before = weights(learns.model), weights(stays.model)
        trainer.updates.apply([trainer.algorithm.collate(steps)], training_step=0)
        assert changed(before[0], learns.model)
        assert set() == changed(before[1], stays.model)


@pytest.mark.real
def test_an_update_does_not_depend_on_micro_batches_or_their_order(folder):
    trainer = agents_trainer(folder, agents_config(**OWN))
    experience = trainer.harness.experience(0)
    # Where nobody has moved yet, every pair is a tie up to rounding.
    trainer.updates.apply([trainer.algorithm.collate(experience.steps)], training_step=0)
    loss, metrics, whole = gradients(trainer, experience, 64)
    for batch_size, epoch in ((1, 0), (3, 1)):
        again, figures, found = gradients(trainer, experience, batch_size, epoch=epoch)
        assert pytest.approx(loss, rel=1e-4) == again
        assert pytest.approx(metrics, rel=1e-3, abs=1e-5) == figures
        assert_close(whole, found)


@pytest.mark.real
@pytest.mark.parametrize(
    "name", wide_but(("dpo", "grpo", "reinforce", "expert_iteration"), "dpo", "reinforce")
)
def test_agents_that_share_everything_learn_as_one_attacker(folder, name):
    options = {"dpo": {"margin": 0.0}, "reinforce": {"baseline": "none"}}.get(name, {})
    found = []
    for roles in ([], ["opener", "presser"]):
        torch.manual_seed(0)
        config = configured(algorithm={"name": name, "options": options})
        system = agents_system(folder, agents_config(roles=roles))
        trainer = Trainer(config, sampler_of(system), build_algorithm(config, system))
        found.append(gradients(trainer, trainer.harness.experience(0), 64))
    (loss, _, alone), (again, _, together) = found

    assert pytest.approx(loss, rel=1e-4, abs=1e-6) == again
    assert_close(alone, together)


def test_the_loss_is_the_agents_own_by_their_shares(folder):
    trainer = agents_trainer(
        folder, agents_config(**OWN), gradient_accumulation_steps=9, training_steps=1
    )
    for report in trainer.steps():
        row = report.row()
        shares = [row[f"train/{name}/share"] for name in ("opener", "presser")]
        losses = [row[f"train/{name}/loss"] for name in ("opener", "presser")]

        assert pytest.approx(1.0) == sum(shares)
        total = sum(a * b for a, b in zip(shares, losses, strict=True))
        assert pytest.approx(row["train/loss"], rel=1e-5) == total
        accuracies = [row[f"train/{name}/reward_accuracy"] for name in ("opener", "presser")]
        total = sum(a * b for a, b in zip(shares, accuracies, strict=True))
        assert pytest.approx(row["train/reward_accuracy"], rel=1e-5) == total
        norms = [row[f"train/{name}/grad_norm"] for name in ("opener", "presser")]
        assert pytest.approx(report.grad_norm) == math.hypot(*norms)
        assert [report.lr] * 2 == [row[f"train/{name}/lr"] for name in ("opener", "presser")]


def test_figures_of_an_agent_are_means_over_its_own_steps():
    figures = {"a/loss": 0.5, "a/share": 0.25, "b/loss": 0.3, "b/share": 0.75, "loss": 0.8}
    expected = {"a/loss": 2.0, "a/share": 0.25, "b/loss": 0.4, "b/share": 0.75, "loss": 0.8}

    assert pytest.approx(expected) == own_means(figures, ["a", "b"])
    assert figures == own_means(figures, [])


def test_later_turns_of_another_agent_count_for_an_earlier_one(folder):
    system = agents_system(folder, agents_config())
    config = configured(
        algorithm={"name": "reinforce", "options": {"baseline": "none", "discount": 0.5}}
    )
    algorithm = build_algorithm(config, system)
    graph = tiny_graph(tiny_node(0.25, tiny_node(0.5), tiny_node(1.0)))
    steps = algorithm.flatten(graph)

    assert [("opener", 0.625), ("presser", 0.5), ("presser", 1.0)] == [
        (step.agent, step.step.advantage) for step in steps
    ]
    # Steps name the turns of the graph itself, so that trees are kept together.
    turns = [id(node) for node in graph.nodes()]
    assert turns == [id(step.node) for step in steps]


def test_a_baseline_is_the_agents_own(folder):
    system = agents_system(folder, agents_config())
    config = configured(
        algorithm={"name": "reinforce", "options": {"baseline": "mean", "backup": "none"}}
    )
    steps = build_algorithm(config, system).flatten_all(
        [tiny_graph(tiny_node(0.0, tiny_node(5.0)), tiny_node(1.0, tiny_node(7.0)))]
    )

    assert [-0.5, 0.5, -1.0, 1.0] == [step.step.advantage for step in steps]


def test_masks_are_put_over_others_turns_alone():
    graph = tiny_graph(tiny_node(0.5, tiny_node(1.0)))
    seen = mask_others(graph, lambda node: len(node.path) == 2)
    first, second = seen.nodes()

    assert ((False,) * 3, (True,) * 3) == (first.probe_mask, second.probe_mask)
    assert all(all(node.probe_mask) for node in graph.nodes())


def test_each_agent_remembers_its_own(folder):
    system = agents_system(folder, agents_config(**OWN))
    config = configured(algorithm={"name": "reinforce", "options": {"baseline": "running"}})
    algorithm = build_algorithm(config, system)
    graphs = [tiny_graph(tiny_node(0.25, tiny_node(1.0)), tiny_node(0.75))]
    figures = algorithm.remember(graphs)

    assert 1.0 == figures["presser/running_mean"] != figures["opener/running_mean"]
    again = build_algorithm(config, system)
    again.load_state(algorithm.state())
    assert {n: float(x) for n, x in algorithm.state().items()} == {
        n: float(x) for n, x in again.state().items()
    }
    assert {"opener/running_mean", "presser/num_seen"} <= algorithm.state().keys()


@pytest.mark.parametrize("name", wide_but(sorted(set(BUILT_INS["algorithm"]) - {"ppo"}), "grpo"))
def test_every_algorithm_without_weights_teaches_several_agents(folder, name):
    torch.manual_seed(0)
    config = configured(algorithm={"name": name, "options": {}}, training_steps=1)
    system = agents_system(folder, agents_config(**OWN))
    trainer = Trainer(config, sampler_of(system), build_algorithm(config, system))
    rows = [report.row() for report in trainer.steps()]

    assert rows
    assert all(math.isfinite(row["train/loss"]) for row in rows)
    assert {"train/opener/loss", "train/presser/loss"} <= {key for row in rows for key in row}


def test_an_algorithm_for_one_attacker_is_refused_for_several(folder):
    system = agents_system(folder, agents_config())
    with pytest.raises(ConfigurationError, match="must be one for each, got DPO"):
        Trainer(configured(), sampler_of(system), DPO(DPO.Options(), system=system))


@dataclass(frozen=True)
class Crowd(World):
    size: int = 2


def test_several_processes_are_refused(folder):
    config = configured()
    system = agents_system(folder, agents_config())
    algorithm = build_algorithm(config, system)
    with pytest.raises(ConfigurationError, match=r"num_processes must be 1 .* got 2"):
        Trainer(config, sampler_of(system), algorithm, world=Crowd())


def test_one_attacker_has_its_algorithm_as_it_is():
    trainer = trainer_of(configured(algorithm={"name": "reinforce", "options": {}}))

    assert isinstance(trainer.algorithm, REINFORCE)
    assert not isinstance(trainer.algorithm, AgentsAlgorithm)
    assert [""] == [learner.name for learner in trainer.updates.learners]


def test_steps_of_no_agent_are_refused(folder):
    system = agents_system(folder, agents_config())
    algorithm = build_algorithm(configured(), system)
    with pytest.raises(ConfigurationError, match="must be those that flatten gives, got a Node"):
        algorithm.collate([tiny_node(0.5)])


def test_what_an_algorithm_compares_is_asked_of_a_sampler_that_a_script_has_built():
    config = configured(algorithm={"name": "grpo", "options": {}})

    with pytest.raises(ConfigurationError, match=r"runs_per_prompt must be at least 2 for GRPO"):
        trainer_of(config, is_evaluated=False, compare="runs")


class Lonely(TreeSampler):
    """Declares nothing of it, but tries every turn once."""

    has_siblings = False


def test_a_sampler_that_tries_each_turn_once_is_refused_to_who_compares_siblings():
    def trainer(algorithm):
        config = configured(algorithm={"name": algorithm})
        return trainer_of(config, sampler=Lonely, is_evaluated=False)

    with pytest.raises(ConfigurationError, match="must try several probes after each context"):
        trainer("dpo")
    assert next(trainer("reinforce").steps()).step == 1


PPO = {"name": "ppo", "options": {"kl": "none"}}


def test_each_agent_of_ppo_has_a_critic_that_learns_from_its_own_turns(folder):
    trainer = agents_trainer(folder, agents_config(**OWN), algorithm_choice=PPO, training_steps=1)
    experience = trainer.harness.experience(0)
    critics = trainer.algorithm.own_weights()
    assert {"opener": 2, "presser": 2} == {name: len(own) for name, own in critics.items()}
    for name, other in (("opener", "presser"), ("presser", "opener")):
        steps = [step for step in experience.steps if step.agent == name]
        # Mean 0 and spread 1 over each agent's own tokens.
        gains = torch.tensor([gain for step in steps for gain in step.step.advantages])
        assert pytest.approx(0.0, abs=1e-5) == float(gains.mean())
        assert pytest.approx(1.0, abs=1e-3) == float(gains.std(correction=0))
        before = [weight.detach().clone() for weight in critics[other]]
        own = [weight.detach().clone() for weight in critics[name]]
        trainer.updates.apply([trainer.algorithm.collate(steps)], training_step=0)
        assert all(map(torch.equal, before, critics[other]))
        assert not any(map(torch.equal, own, critics[name]))


def test_an_agent_that_shares_all_weights_has_a_critic_and_an_optimiser_for_it(folder):
    factors = {"mlp": {"pattern": "mlp", "lr_factor": 0.5}}
    factors["critic"] = {"pattern": "^algorithm", "lr_factor": 0.25}
    config = {"parts": factors, "lr": 0.01}
    trainer = agents_trainer(folder, agents_config(), algorithm_choice=PPO, **config)
    moved = {
        learner.name: {id(p) for group in learner.optimizer.param_groups for p in group["params"]}
        for learner in trainer.updates.learners
    }

    critics = trainer.algorithm.own_weights()
    assert moved["presser"] == {id(weight) for weight in critics["presser"]}
    assert {id(weight) for weight in critics["opener"]} < moved["opener"]
    rates = {group["lr"] for group in trainer.updates.learners[1].optimizer.param_groups}
    assert {0.0025} == rates


@pytest.mark.real
def test_ppo_of_agents_does_not_depend_on_micro_batches_or_padding(folder):
    trainer = agents_trainer(folder, agents_config(**OWN), algorithm_choice=PPO)
    experience = trainer.harness.experience(0)
    trainer.updates.apply([trainer.algorithm.collate(experience.steps)], training_step=0)
    loss, metrics, whole = gradients(trainer, experience, 64)
    assert any("algorithm." in name for name in whole)
    for batch_size, epoch in ((1, 0), (5, 1)):
        again, figures, found = gradients(trainer, experience, batch_size, epoch=epoch)
        assert pytest.approx(loss, rel=1e-4, abs=1e-6) == again
        assert pytest.approx(metrics, rel=1e-3, abs=1e-5) == figures
        assert_close(whole, found)


@pytest.mark.real
def test_ppo_of_agents_resumes_bit_for_bit(folder, tmp_path):
    def trainer(name):
        return agents_trainer(
            folder, agents_config(**OWN), algorithm_choice=PPO, store=tmp_path / name
        )

    def told(own):
        return [weight.detach().clone() for weight in own.updates.weights().values()]

    whole = trainer("whole")
    whole.train()
    for report in trainer("cut").steps():
        if report.training_step == 2:
            break
    resumed = trainer("cut")
    assert resumed.resume()
    resumed.train()

    assert 3 == resumed.progress.training_step
    assert all(map(torch.equal, told(whole), told(resumed)))
