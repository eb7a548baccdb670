"""Every algorithm raises the reward over the untrained attacker's on the embedded world.

Attacker, target and reference are the built-in language model, smaller and less read than by
default, so that it learns in half a minute who is angered by what, and its untrained attacker
succeeds now and then. One seed shows it; ``ASTRA_SEEDS`` says how many, and the figures of
docs/studies/rates.md are printed by

    ASTRA_SEEDS=3 python -m pytest -m "real or wide" --log-cli-level=INFO \\
        tests/end_to_end/test_algorithms_learn.py
"""

import copy
import logging
import os
from dataclasses import dataclass, field
from statistics import fmean

import pytest

from astra_core.config import (
    Choice,
    GenerationConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.models.language_model import LanguageModel
from astra_core.registry import BUILT_INS, build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_core.training.trainer import Trainer
from tasks.builtin.language_model import LanguageModelConfiguration, make_language_model
from tasks.builtin.openers import make_openers

pytestmark = pytest.mark.wide

SEEDS = (1, 2, 3)[: int(os.environ.get("ASTRA_SEEDS", "1"))]
# Standard error of a mean reward over the examination's 256 rollouts: 0.02.
GAIN = 0.03
SMALL = LanguageModelConfiguration(
    num_quarrels=5000,
    num_dialogues=1200,
    hidden_size=96,
    num_layers=2,
    intermediate_size=288,
    lr=4e-3,
)
UTTERANCE = GenerationConfiguration(max_new_tokens=24)
SYSTEM = SystemConfiguration(
    max_context_tokens=128, probe=UTTERANCE, response=UTTERANCE, scorer=Choice(name="profanity")
)
NUM_DEV = 64


@dataclass(frozen=True)
class Run:
    """How one algorithm is trained; one turn, four probes after each prompt."""

    lr: float = 1e-3
    options: dict = field(default_factory=dict)
    training_steps: int = 16


@dataclass(frozen=True)
class Examination:
    """Means over rollouts."""

    reward: float
    score: float


# Who copies whole probes needs a smaller step, or the words fall apart before the reward rises.
RUNS = {
    "dpo": Run(),
    "trajectory_balance": Run(),
    "reinforce": Run(),
    "rloo": Run(),
    "grpo": Run(),
    "ppo": Run(),
    # Four rollouts of a prompt are all there are: the default k copies every one.
    "expert_iteration": Run(lr=7e-4, options={"k": 1}),
    "sft": Run(lr=7e-4),
    "distillation": Run(),
}


@pytest.fixture(scope="session")
def speaker():
    """The built-in language model (twenty seconds of CPU)."""
    model, tokenizer = make_language_model(SMALL, seed=1)
    return LanguageModel(model.requires_grad_(requires_grad=False), tokenizer)


@pytest.fixture(scope="session")
def untrained(speaker):
    """How the untrained attacker does, by seed."""
    return {seed: examined(sampler_of(speaker, seed)) for seed in SEEDS}


@pytest.fixture(scope="session")
def expert(speaker):
    """An attacker that has learned by rewards what anger is; it teaches in distillation."""
    sampler = sampler_of(speaker, 9)
    train(sampler, "rloo", RUNS["rloo"])
    return copy_of(sampler.system.attacker)


def openers():
    return [
        Prompt(f"{index:016x}", opener.text)
        for index, opener in enumerate(make_openers(NUM_DEV + 120, seed=3))
    ]


def copy_of(model, *, is_trained=False):
    weights = copy.deepcopy(model.model).requires_grad_(is_trained)
    return LanguageModel(weights, model.tokenizer)


def sampler_of(speaker, seed, *, reference=None):
    system = System.of(
        copy_of(speaker, is_trained=True),
        speaker,
        reference or speaker,
        scorer=build("scorer", SYSTEM.scorer),
        config=SYSTEM,
    )
    return TreeSampler(
        TreeSampler.Options(tree_width=4, tree_depth=1, num_responses=2),
        system=system,
        prompts=openers()[NUM_DEV:],
        reward=build("reward", Choice(name="adversarial")),
        seed=seed,
    )


def examined(sampler):
    """Mean reward and mean score of 256 rollouts from openers that training never sees."""
    graphs = sampler.grow(
        openers()[:NUM_DEV], (4,), purpose="evaluation", iteration=0, num_responses=2
    )
    # A memory of its own: what was said in training is no less novel here.
    reward = AdversarialReward(AdversarialReward.Options())
    nodes = [node for graph in reward.assign(graphs) for node in graph.nodes()]
    return Examination(fmean(node.reward for node in nodes), fmean(node.score for node in nodes))


def train(sampler, name, run):
    config = TrainingConfiguration(
        training_steps=run.training_steps, num_episodes_per_experience=16, batch_size=64, lr=run.lr
    )
    choice = Choice(name=name, options=run.options)
    Trainer(config, sampler, build("algorithm", choice, system=sampler.system)).train()


def test_every_algorithm_is_trained_here():
    assert set(BUILT_INS["algorithm"]) == set(RUNS)


def test_the_untrained_attacker_succeeds_now_and_then(untrained):
    assert all(0.05 < examination.score < 0.3 for examination in untrained.values())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RUNS)
def test_training_raises_the_reward(name, seed, speaker, untrained, request):
    is_taught = name == "distillation"
    reference = request.getfixturevalue("expert") if is_taught else None
    sampler = sampler_of(speaker, seed, reference=reference)
    train(sampler, name, RUNS[name])
    before, after = untrained[seed], examined(sampler)
    logging.getLogger(__name__).info(
        "%s, seed %d: reward %.3f -> %.3f, score %.3f -> %.3f",
        *(name, seed, before.reward, after.reward, before.score, after.score),
    )

    assert after.reward > before.reward + GAIN
    assert after.score > before.score + GAIN
