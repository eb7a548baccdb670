"""What the guides' algorithms, samplers and agents do in a script, through the training stage."""

from dataclasses import dataclass, fields

import pytest
import torch
from guide_scripts import Marked
from hostile_jobs import HostileJobs
from job_service import served

from astra_core.algorithms.credit import can_teach
from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.pairs import preference_loss
from astra_core.engine.logprobs import token_logprobs
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.functional import (
    clipped_surrogate,
    gae,
    group_advantages,
    n_step_returns,
)
from astra_parts.algorithms.ppo import PPO
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.testing import check_algorithm, tiny_graph, tiny_node, tiny_system

MINE = __name__
SHORT = {"training_steps": 2, "evaluate": "none", "algorithm": "reinforce"}


@dataclass(frozen=True, slots=True)
class TokenSteps:
    """A turn with an advantage for each token of its probe."""

    node: object
    advantages: tuple[float, ...]


class Custom(REINFORCE):
    """Rewards at the last trained token, a critic of its own, GAE, and the clipped loss."""

    def __init__(self, options, *, system):
        super().__init__(options, system=system)
        self.critic = torch.nn.Parameter(torch.zeros(2))

    def parameters(self):
        return (self.critic,)

    def state(self):
        return {**super().state(), "critic": self.critic.detach()}

    def load_state(self, state):
        super().load_state(state)
        with torch.no_grad():
            self.critic.copy_(state["critic"])

    def values_of(self, depths):
        return self.critic[0] + self.critic[1] * depths

    def flatten_all(self, graphs):
        steps = []
        for group in (group for graph in graphs for group in graph.groups()):
            nodes = [node for node in group if can_teach(node)]
            rewards = torch.tensor([node.reward for node in nodes])
            own = group_advantages(rewards, torch.zeros(len(nodes), dtype=torch.long))
            returns = n_step_returns(own, num_steps=1, discount=0.9)[:, None]
            depths = torch.tensor([float(len(node.path)) for node in nodes])
            values = self.values_of(depths).detach()[:, None]
            ends = torch.ones_like(values, dtype=torch.bool)
            advantages, _ = gae(
                returns,
                values,
                torch.zeros_like(values),
                done=ends,
                terminated=ends,
                discount=1.0,
                decay=1.0,
            )
            pairs = zip(nodes, advantages[:, 0].tolist(), strict=True)
            steps += [TokenSteps(node, _at_the_end(node, own)) for node, own in pairs]
        return steps

    def collate(self, steps):
        batch = super().collate(steps)
        depths = torch.tensor([float(len(step.node.path)) for step in steps])
        return Marked(*(getattr(batch, field.name) for field in fields(batch)), depths)

    def step(self, batch):
        logprobs = token_logprobs(self.system.attacker.model, batch.rows)
        ratios = logprobs - batch.behaviour_logprobs
        losses = clipped_surrogate(ratios, batch.advantages, clip_low=0.2, clip_high=0.2)
        errors = batch.advantages.sum(-1) - self.values_of(batch.depths)
        widest = int(batch.rows.continuation_mask.sum(-1).max())
        return (losses * batch.mask).sum() + (errors**2).sum(), {
            "rows": float(len(batch.mask)),
            "rewarded_tokens": float((batch.advantages != 0.0).sum(-1).max()),
            "padded": float(batch.mask.shape[1] - widest),
            "depth": float(batch.depths.mean()),
            "critic": float(self.critic.detach().abs().sum()),
        }


def _at_the_end(node, advantage):
    last = max(place for place, is_trained in enumerate(node.probe_mask) if is_trained)
    return tuple(advantage * (place == last) for place in range(len(node.probe_ids)))


class Counted(TreeSampler):
    """Says how many prompts it was given, and for which iteration."""

    given = (-1, 0)

    def roll_out(self, prompts, *, iteration):
        self.given = iteration, len(prompts)
        return super().roll_out(prompts, iteration=iteration)

    def remember(self, graphs):
        return {"iteration": float(self.given[0]), "prompts": float(self.given[1])}


@pytest.mark.row(9)
@pytest.mark.row(10)
@pytest.mark.row(41)
@pytest.mark.row(42)
@pytest.mark.row(43)
@pytest.mark.row(48)
@pytest.mark.row(51)
@pytest.mark.row(54)
@pytest.mark.row(55)
@pytest.mark.row(59)
@pytest.mark.row(64)
def test_an_algorithm_of_ones_own_brings_all_its_parts(pipeline):
    alone = Custom(Custom.Options(), system=tiny_system(1))
    (lonely,) = alone.flatten_all([tiny_graph(tiny_node(0.4))])
    assert 0.0 == sum(lonely.advantages)
    check_algorithm(Custom)
    tree = {"name": f"{MINE}:Counted", "options": {"tree_width": 3, "num_responses": 2}}
    algorithm = {"name": f"{MINE}:Custom"}
    training = {"algorithm": algorithm, "training_steps": 3, "batch_size": 5, "evaluate": "none"}
    ran = pipeline(training=training, rollouts={"sampler": tree})

    assert 0 == ran.status, ran.said
    rows = ran.rows[1:]
    # The first experience is the one that the stage before has rolled out.
    assert {("-1.0", "0.0"), ("1.0", "4.0"), ("2.0", "4.0")} == {
        (row["sampler/iteration"], row["sampler/prompts"]) for row in rows
    }
    assert 5.0 == max(float(row["train/rows"]) for row in rows)
    assert 1.0 == max(float(row["train/rewarded_tokens"]) for row in rows)
    assert {"0.0"} == {row["train/padded"] for row in rows}
    assert all(float(row["train/depth"]) >= 1.0 for row in rows)
    assert 0.0 == float(rows[0]["train/critic"]) < float(rows[-1]["train/critic"])


class OwnLoss(PPO):
    """Only the loss differs, which says less of what pays; GAE and the loop are built in."""

    def step(self, batch):
        loss, logs = super().step(batch)
        return -loss, {**logs, "own_loss": 1.0}


class Preference(DPO):
    """DPO with a loss of its own."""

    def step(self, batch):
        def losses(chosen, rejected):
            return (1.0 - (chosen - rejected)).clamp(min=0.0)

        beta = self.options.beta
        return preference_loss(self.system, batch, losses, beta=beta, length_normalised=False)


KL = {"kl": "reward", "kl_estimator": "k1", "kl_coefficient": 1.0}
LEARNT = {
    "dpo": ({"name": "dpo", "options": {"margin": 0.0}}, "train/reward_margin"),
    "a loss over pairs": (
        {"name": f"{MINE}:Preference", "options": {"margin": 0.0}},
        "train/reward_margin",
    ),
    "a value head": ("ppo", "train/value_loss"),
    "a loss over PPO's": (f"{MINE}:OwnLoss", "train/own_loss"),
    "a KL penalty": ({"name": "grpo", "options": KL}, "train/kl_coefficient"),
}


@pytest.mark.row(35)
@pytest.mark.row(52)
@pytest.mark.row(53)
@pytest.mark.row(68)
@pytest.mark.row(71)
def test_each_loss_of_the_guides_learns_in_its_own_way(pipeline):
    ran = {
        name: pipeline(training={**SHORT, "algorithm": algorithm})
        for name, (algorithm, _) in LEARNT.items()
    }

    assert dict.fromkeys(LEARNT, 0) == {name: each.status for name, each in ran.items()}
    assert all(ran[name].rows[1][figure] for name, (_, figure) in LEARNT.items())
    assert len(LEARNT) == len({each.report["checkpoint_digest"] for each in ran.values()})


@pytest.mark.row(32)
def test_the_seed_of_the_training_decides_what_is_learned(pipeline):
    digests = [
        pipeline(training=SHORT, training_seed=seed).report["checkpoint_digest"]
        for seed in (5, 5, 6)
    ]

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.row(73)
def test_the_stage_knows_how_many_training_steps_there_are(pipeline, monkeypatch):
    monkeypatch.setattr("tasks.machine.heartbeat.EVERY_S", 0.02)
    told = [line for line in pipeline(training=SHORT).said if line.startswith("training ")]

    assert [line for line in told if " 1 of 2 (50%)" in line], told


@pytest.mark.row(74)
def test_the_stage_uses_deterministic_kernels_on_the_device_of_params(pipeline):
    torch.use_deterministic_algorithms(False)
    ran = pipeline(training=SHORT, machine={"device": "cpu"})

    assert (0, True) == (ran.status, torch.are_deterministic_algorithms_enabled())
    if not torch.cuda.is_available():
        assert "cuda" in pipeline(training=SHORT, machine={"device": "cuda"}).line


@pytest.mark.row(76)
@pytest.mark.row(77)
def test_jobs_at_a_service_are_created_and_awaited_in_the_pipeline(pipeline):
    service = HostileJobs()
    algorithm = {"name": "expert_iteration", "options": {"selection": "top_k", "k": 2}}
    with served(service.app) as url:
        attacker = {"base_url": url, "model": "tiny", "replies": "replies"}
        options = {"attacker": attacker, "min_examples": 1, "poll_s": 0.01, "export": False}
        trainer = {"name": "text", "options": options}
        ran = pipeline(
            training={**SHORT, "trainer": trainer, "algorithm": algorithm, "max_grad_norm": None}
        )

    assert (0, 2) == (ran.status, ran.report["training_steps"]), ran.said
    assert ["tiny", "ft:0"] == [job["model"] for job in service.jobs]
