"""What the scripts of the guides' tests have in common: small settings, beside tiny models."""

from dataclasses import dataclass

import torch

from astra_core import Trainer, TrainingConfiguration
from astra_core.algorithms.dpo import DPO
from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    SystemConfiguration,
)
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.presets import Assembly, hf_configuration, hf_trainer
from astra_parts.testing import tiny_prompts, tiny_system

SHORT = GenerationConfiguration(max_new_tokens=6)
SMALL = Assembly(
    system=SystemConfiguration(
        max_context_tokens=64,
        probe=SHORT,
        response=SHORT,
        scorer=Choice(name="phrases", options={"phrases": ["bad", "worse"]}),
    ),
    sampler=Choice(name="tree", options={"tree_width": 3, "num_responses": 1}),
    evaluation=EvaluationConfiguration(num_rollouts=2, depth=1, num_resamples=50),
)
TEXTS = [prompt.text for prompt in tiny_prompts(6)]
FAST = {"training_steps": 2, "lr": 0.01, "eval_every": 1}
CONFIG = {"training_steps": 2, "num_episodes_per_experience": 2, "batch_size": 4, "lr": 0.01}


def sampler_of(system=None, *, seed=1, **options):
    """A sampler of trees in a tiny System of its own."""
    return TreeSampler(
        TreeSampler.Options(**{"tree_width": 3, "tree_depth": 1, "num_responses": 1} | options),
        system=system or tiny_system(1),
        prompts=tiny_prompts(5),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )


def preset(assembly=SMALL, **changes):
    """The preset's trainer in ``my/run``, between the folders that ``here`` makes."""
    return hf_trainer(
        "my/attacker",
        "my/target",
        TEXTS,
        dev_prompts=TEXTS[:3],
        folder="my/run",
        config=hf_configuration(**FAST | changes),
        assembly=assembly,
    )


def weights_of(trainer):
    """The attacker's weights as bytes."""
    model = trainer.sampler.system.attacker.model
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def dpo(system):
    return DPO(DPO.Options(margin=0.0), system=system)


def trained(own=Trainer, sampler=None, **changes):
    """The attacker's weights after a training of the plain kind."""
    sampler = sampler or sampler_of()
    config = TrainingConfiguration(**CONFIG | changes)
    trainer = own(config, sampler, dpo(sampler.system))
    trainer.train()
    return weights_of(trainer)


@dataclass(frozen=True, slots=True)
class Marked(PolicyBatch):
    """A batch with a field more."""

    depths: torch.Tensor
