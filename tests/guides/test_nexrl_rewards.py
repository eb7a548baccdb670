"""NexRL's guide to advantages, rewards, networks and prompts of one's own."""

from dataclasses import fields, replace

import pytest
import torch
from guide_scripts import SMALL, Marked, preset, sampler_of

from astra_core.algorithms.credit import can_teach
from astra_core.config import Choice, NonNegative
from astra_core.reward import Reward
from astra_core.rollout import Prompt
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.functional import (
    clipped_surrogate,
    gae,
    group_advantages,
    n_step_returns,
)
from astra_parts.algorithms.policy_batch import PolicyStep
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.testing import (
    check_algorithm,
    check_reward,
    tiny_graph,
    tiny_node,
    tiny_prompts,
    tiny_system,
)

MINE = __name__


class Grouped(REINFORCE):
    """Minus the mean of the siblings, times a weight."""

    def flatten_all(self, graphs):
        steps = []
        for group in (group for graph in graphs for group in graph.groups()):
            mean = sum(node.reward for node in group) / len(group)
            steps += [PolicyStep(node, node.reward - mean) for node in group if can_teach(node)]
        return steps


@pytest.mark.wide
@pytest.mark.row(48, "`_prepare_trajectories`: advantages within a group")
def test_advantages_of_a_group_sum_to_zero(here):
    algorithm = Grouped(Grouped.Options(), system=tiny_system(1))
    steps = algorithm.flatten_all([tiny_graph(tiny_node(0.2), tiny_node(0.8))])

    assert [-0.3, 0.3] == [pytest.approx(step.advantage) for step in steps]
    check_algorithm(Grouped)


@pytest.mark.wide
@pytest.mark.row(49, "groups by `run_id`, several runs of a task")
def test_a_prompts_runs_are_compared(here):
    grpo = {"name": "grpo", "options": {"compare": "runs"}}
    trainer = preset(SMALL.model_copy(update={"runs_per_prompt": 2}), algorithm=grpo)
    graphs = trainer.harness.experience(0).graphs

    assert 2 * len({graph.prompt.prompt_id for graph in graphs}) == len(graphs)
    assert {0, 1} == {graph.run_id for graph in graphs}
    assert trainer.train().step > 0


@pytest.mark.row(50, "an algorithm in a module of its own, imported relatively")
def test_a_relative_import_works_in_the_pipeline(pipeline, world):
    (world / "plugins/task").mkdir(exist_ok=True)
    (world / "plugins/task/my_algorithm.py").write_text(
        "def advantages(rewards):\n    return [reward * 2 for reward in rewards]\n", "utf-8"
    )
    (world / "plugins/task/my_trainer.py").write_text(
        "from astra_parts.algorithms.policy import PolicyStep\n"
        "from astra_parts.algorithms.reinforce import REINFORCE\n"
        "from .my_algorithm import advantages\n\n"
        "class Mine(REINFORCE):\n"
        "    def flatten_all(self, graphs):\n"
        "        nodes = [node for graph in graphs for node in graph.nodes()]\n"
        "        own = advantages([node.reward for node in nodes])\n"
        "        return [PolicyStep(node, value) for node, value in zip(nodes, own)]\n",
        "utf-8",
    )
    ran = pipeline(training={"algorithm": {"name": "plugins.task.my_trainer:Mine"}})

    assert 0 == ran.status


@pytest.mark.row(51, "GAE and the clipped loss as functions apart from the trainer")
def test_gae_and_the_clipped_loss_are_functions():
    rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    ends = torch.tensor([[False, True]])
    advantages, returns = gae(
        rewards, values, values.roll(-1), done=ends, terminated=ends, discount=1.0, decay=1.0
    )
    losses = clipped_surrogate(
        torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]]), clip_low=0.2, clip_high=0.2
    )

    assert ([[0.5, 0.5]], [[1.0, 1.0]]) == (advantages.tolist(), returns.tolist())
    assert [[-1.0, pytest.approx(-1.2)]] == losses.tolist()


@pytest.mark.wide
@pytest.mark.row(52, "a KL penalty")
@pytest.mark.parametrize("where", ["reward", "loss"])
def test_a_kl_penalty_changes_the_update(where, here):
    options = {"kl": where, "kl_estimator": "k1" if where == "reward" else "k3"}
    with_it = preset(algorithm={"name": "grpo", "options": {**options, "kl_coefficient": 1.0}})
    plain = preset(algorithm={"name": "grpo"})

    assert [r.loss for r in with_it.steps()] != [r.loss for r in plain.steps()]


@pytest.mark.wide
@pytest.mark.row(53, "a value function: a head on the attacker")
def test_a_value_head_learns(here):
    trainer = preset(algorithm={"name": "ppo"}, training_steps=1)
    before = [weight.detach().clone() for weight in trainer.algorithm.parameters()]
    losses = [report.metrics["train/value_loss"] for report in trainer.steps()]

    assert all(loss > 0.0 for loss in losses)
    assert not all(map(torch.equal, before, trainer.algorithm.parameters()))


class Critic(REINFORCE):
    """A small network of its own guesses the reward from the length of the context."""

    def __init__(self, options, *, system):
        super().__init__(options, system=system)
        generator = torch.Generator().manual_seed(0)
        self.critic = torch.nn.Parameter(torch.rand(2, generator=generator))

    def parameters(self):
        return (self.critic,)

    def state(self):
        return {**super().state(), "critic": self.critic.detach()}

    def load_state(self, state):
        super().load_state(state)
        with torch.no_grad():
            self.critic.copy_(state["critic"])

    def collate(self, steps):
        batch = super().collate(steps)
        lengths = torch.tensor([len(step.node.context_ids) / 10 for step in steps])
        return Marked(*(getattr(batch, field.name) for field in fields(batch)), lengths)

    def step(self, batch):
        values = self.critic[0] + self.critic[1] * batch.depths
        errors = batch.advantages[:, 0] - values
        loss, logs = super().step(replace(batch, advantages=errors.detach()[:, None]))
        return loss + (errors**2).sum(), {**logs, "critic": float((errors.detach() ** 2).mean())}


@pytest.mark.wide
@pytest.mark.row(54, "a value function: a network of its own")
def test_an_own_network_is_trained_saved_and_resumed(here):
    mine = {"name": f"{MINE}:Critic", "options": {"baseline": "none"}}
    first = preset(algorithm=mine, training_steps=1, checkpoint={"save_every": 1})
    before = first.algorithm.critic.detach().clone()
    first.train()
    again = preset(algorithm=mine, checkpoint={"save_every": 1})
    again.resume()

    assert not torch.equal(before, first.algorithm.critic)
    assert torch.equal(first.algorithm.critic, again.algorithm.critic)


@pytest.mark.row(55, "n-step returns")
def test_n_step_returns_are_the_guides():
    rewards, num_steps, discount = [1.0, 2.0, 3.0, 4.0], 2, 0.9
    expected = [
        sum(discount**j * rewards[i + j] for j in range(min(num_steps, len(rewards) - i)))
        for i in range(len(rewards))
    ]
    found = n_step_returns(torch.tensor(rewards), num_steps=num_steps, discount=discount)

    assert expected == pytest.approx(found.tolist())


class Forgetful(REINFORCE):
    """Loses the weight of its batch."""

    def collate(self, steps):
        return {"rows": super().collate(steps).rows}


@pytest.mark.row(56, "required fields of a batch are asked for")
def test_a_batch_without_its_fields_is_one_line(pipeline):
    ran = pipeline(training={"algorithm": {"name": f"{MINE}:Forgetful"}})

    assert 2 == ran.status
    assert "must give a batch whose weight and num_tokens are numbers" in ran.line


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


class TellingParts(TwoParts):
    def remember(self, graphs):
        nodes = [node for graph in graphs for node in graph.nodes() if not node.has_failed]
        return {"score_part": sum(node.score for node in nodes) / max(len(nodes), 1)}


@pytest.mark.row(58, "the parts of a reward appear as metrics")
def test_the_parts_of_a_reward_are_in_the_table(pipeline):
    ran = pipeline(reward={"name": f"{MINE}:TellingParts", "options": {}})

    parts = [float(row["reward/score_part"]) for row in ran.rows[1:]]
    assert parts
    assert all(0.0 <= part <= 1.0 for part in parts)


@pytest.mark.row(59, "edge cases: no sample, one sample, no spread")
def test_advantages_are_finite_at_the_edges():
    groups = torch.zeros(0, dtype=torch.long)

    assert [] == group_advantages(torch.zeros(0), groups).tolist()
    assert [0.0] == group_advantages(torch.tensor([5.0]), torch.tensor([0])).tolist()
    assert [0.0, 0.0] == group_advantages(torch.tensor([2.0, 2.0]), torch.tensor([0, 0])).tolist()


@pytest.mark.row(60, "rewards of several parts, shaped")
def test_a_reward_of_two_parts_keeps_the_contract_and_runs(pipeline):
    check_reward(TwoParts)
    runs = [
        pipeline(reward={"name": f"{MINE}:TwoParts", "options": {"bonus": bonus}})
        for bonus in (0.0, 1.0)
    ]

    assert [0, 0] == [ran.status for ran in runs]
    assert runs[0].rows[1]["rollout/reward"] != runs[1].rows[1]["rollout/reward"]


class Later(TreeSampler):
    """Short prompts first: the longer ones come with later iterations."""

    def episodes(self, iteration, count):
        ordered = sorted(self.prompts, key=lambda prompt: len(prompt.text))
        start = iteration * count % len(ordered)
        return tuple((ordered * 2)[start : start + count])


@pytest.mark.row(61, "a curriculum by iteration")
def test_prompts_grow_longer_with_the_iteration():
    plain = sampler_of()
    sampler = Later(
        plain.options, system=plain.system, prompts=plain.prompts, reward=plain.reward, seed=1
    )
    lengths = [max(len(p.text) for p in sampler.episodes(step, 2)) for step in range(2)]

    assert lengths[0] < lengths[1]


class Harder(TreeSampler):
    """The easiest prompts first."""

    def episodes(self, iteration, count):
        ordered = sorted(self.prompts, key=lambda prompt: prompt.metadata["difficulty"])
        return tuple(ordered[iteration * count : (iteration + 1) * count])


@pytest.mark.row(62, "a curriculum by what is known of a prompt")
def test_prompts_grow_harder_by_what_is_known_of_them():
    prompts = [
        Prompt.of(prompt.text, {"difficulty": level})
        for prompt, level in zip(tiny_prompts(4), (3, 1, 2, 0), strict=True)
    ]
    plain = sampler_of()
    sampler = Harder(
        plain.options, system=plain.system, prompts=prompts, reward=plain.reward, seed=1
    )
    levels = [
        [prompt.metadata["difficulty"] for prompt in sampler.episodes(step, 2)] for step in range(2)
    ]

    assert [[0, 1], [2, 3]] == levels


class Adaptive(TreeSampler):
    """Has a level that rises, and keeps it."""

    level = 0

    def episodes(self, iteration, count):
        self.level += 1
        return super().episodes(iteration, count)

    def state(self):
        return {"level": torch.tensor(self.level)}

    def load_state(self, state):
        self.level = int(state["level"])


@pytest.mark.wide
@pytest.mark.row(63, "an adaptive curriculum survives a kill")
def test_a_samplers_own_state_goes_on(here):
    own = SMALL.model_copy(
        update={"sampler": Choice(name=f"{MINE}:Adaptive", options={"tree_width": 3})}
    )
    preset(own, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(own, checkpoint={"save_every": 1})
    again.resume()

    assert 1 == again.sampler.level
