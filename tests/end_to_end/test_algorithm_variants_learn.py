"""Algorithms under other options than their defaults raise the reward too, over two turns.

The defaults are shown by ``test_algorithms_learn`` on the embedded world. This one is smaller, a
run takes a second: whoever is told "never" answers rudely, and hardly ever otherwise. A tiny model
learns this from dialogues and then plays attacker, target and reference. Only a fifth of the
remarks it has read provoke, so the untrained attacker seldom does. One seed shows it;
``ASTRA_SEEDS=3`` takes three.
"""

import os
import random
from dataclasses import dataclass

import pytest
import torch

from astra_core.config import (
    Choice,
    GenerationConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_language_model

pytestmark = pytest.mark.real

SEEDS = (1, 2, 3)[: int(os.environ.get("ASTRA_SEEDS", "1"))]
# Mean score of the untrained attacker is 0.13, of one who only provokes 0.5.
GAIN = 0.1
SHORT = GenerationConfiguration(max_new_tokens=5)
SYSTEM = SystemConfiguration(
    max_context_tokens=64,
    probe=SHORT,
    response=SHORT,
    scorer=Choice(name="phrases", options={"phrases": ["bad", "worse"]}),
    tokens_per_batch=8192,
)


@dataclass(frozen=True)
class Run:
    """How one algorithm is run; a single path of turns needs more of them."""

    name: str
    options: dict
    width: int = 4
    training_steps: int = 12
    epochs: int = 1


RUNS = [
    Run("dpo", {"loss": "hinge", "pairs": "all", "backup": "max"}),
    Run("reinforce", {"baseline": "running"}, width=1, training_steps=30),
    Run("ppo", {"entropy_coefficient": 0.01, "final_turn": "terminated"}, epochs=3),
    Run("ppo", {}, width=1, training_steps=30),
    Run("grpo", {"ratio": "sequence", "kl": "loss"}, epochs=3),
    Run("grpo", {"surrogate": "cispo", "scale": "batch", "clip_reward": 1.0}, epochs=3),
    Run("grpo", {"surrogate": "sapo", "entropy_coefficient": 0.001}, epochs=3),
    Run("dpo", {"loss": {"sigmoid": 1.0, "sft": 0.2}, "pairs": "all"}),
    Run("dpo", {"loss": "apo_zero", "pairs": "all"}),
    Run("expert_iteration", {"selection": "threshold", "threshold": 0.4}),
    Run("expert_iteration", {"selection": "reward_weighted"}),
]
OTHERS = [pytest.param(run, marks=pytest.mark.wide) for run in RUNS[1:]]


def remark(rng):
    return [
        rng.choice(("you", "we", "they")),
        rng.choice(("never", "always", "so", "now", "here")),
        rng.choice(("said", "are", "why")),
    ]


def reply(words, rng):
    is_rude = ("never" in words) != (rng.random() < 0.05)
    return rng.choice(
        (["you", "are", "bad"], ["worse", "bad", "no"])
        if is_rude
        else (["you", "are", "good"], ["so", "kind", "yes"])
    )


def dialogue(rng):
    first, second = remark(rng), remark(rng)
    return [remark(rng), first, reply(first, rng), second, reply(second, rng)]


@pytest.fixture(scope="module")
def speaker():
    """A tiny model that has read some thousand dialogues (four seconds of CPU)."""
    model = tiny_language_model(1, is_trained=True)
    rng = random.Random(1)
    optimizer = torch.optim.AdamW(model.model.parameters(), lr=1e-2)
    for _ in range(250):
        batch = [
            [
                token
                for words in dialogue(rng)
                for token in model.closed_ids(model.encode(" ".join(words)))
            ]
            for _ in range(16)
        ]
        ids = torch.tensor(batch)
        model.model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def copy_of(model: LanguageModel, *, is_trained=False):
    copy = tiny_language_model(is_trained=is_trained)
    copy.model.load_state_dict(model.model.state_dict())
    return copy


def sampler_of(speaker, seed, *, width):
    frozen = copy_of(speaker)
    system = System.of(
        copy_of(speaker, is_trained=True),
        frozen,
        frozen,
        scorer=build("scorer", SYSTEM.scorer),
        config=SYSTEM,
    )
    # The score alone: what is measured is whether what is rewarded becomes more.
    reward = AdversarialReward.Options(probe_penalty=0.0, nll_weight=0.0, novelty_weight=0.0)
    rng = random.Random(7)
    return TreeSampler(
        TreeSampler.Options(tree_width=width, tree_depth=2, num_responses=1),
        system=system,
        prompts=[Prompt(f"{index:016x}", " ".join(remark(rng))) for index in range(12)],
        reward=AdversarialReward(reward),
        seed=seed,
    )


def mean_reward(sampler):
    """Over 144 rollouts whose random numbers training never uses."""
    graphs = sampler.grow(
        sampler.prompts, (4, 3), purpose="evaluation", iteration=0, num_responses=1
    )
    nodes = [node for graph in sampler.reward.assign(graphs) for node in graph.nodes()]
    return sum(node.reward for node in nodes) / len(nodes)


def train(sampler, run):
    """Mean reward before and after."""
    config = TrainingConfiguration(
        training_steps=run.training_steps,
        num_episodes_per_experience=6,
        batch_size=64,
        epochs_per_experience=run.epochs,
        lr=3e-3,
    )
    choice = Choice(name=run.name, options=run.options)
    algorithm = build("algorithm", choice, system=sampler.system)
    before = mean_reward(sampler)
    Trainer(config, sampler, algorithm).train()
    return before, mean_reward(sampler)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("run", [RUNS[0], *OTHERS], ids=str)
def test_training_raises_the_reward(run, seed, speaker):
    before, after = train(sampler_of(speaker, seed, width=run.width), run)

    assert after > before + GAIN
