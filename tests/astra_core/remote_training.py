"""A tiny run of the trainer ``remote`` at a service that the test plays."""

import torch
from tiny_training import EXAMINATION, configured, sampler_of

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.testing import tiny_prompts, tiny_system

WHERE = {"address": "http://127.0.0.1:1", "base_model": "tiny", "export": False}
SHORT = GenerationConfiguration(max_new_tokens=3, min_new_tokens=0)


class Played(RemoteTrainer):
    """Asks the service that the test plays."""

    service_of_all = None

    @classmethod
    def connected(cls, *_, **__):
        return cls.service_of_all


def remote(folder, service, *, kind=Played, options=None, reward=None, **changes):
    """A trainer as a new process would build it."""
    torch.manual_seed(0)
    settings = {
        "algorithm": {"name": "grpo"},
        "max_grad_norm": None,
        "kl": {"max_per_experience_nats": None},
        "optimizer": {"name": "adam"},
        "schedule": {"name": "transformers", "options": {"kind": "linear"}},
        "eval_every": 1,
        "training_steps": 2,
        "trainer": {"name": "remote", "options": {**WHERE, **(options or {})}},
    }
    config = configured(**{**settings, **changes})
    talk = SystemConfiguration(
        max_context_tokens=64, probe=SHORT, response=SHORT, tokens_per_batch=512
    )
    system = tiny_system(1, config=talk)
    kind.service_of_all = service
    return kind(
        config,
        sampler_of(system, reward=reward),
        build("algorithm", config.algorithm, system=system),
        evaluator=Evaluator(
            EXAMINATION,
            prompts=tiny_prompts(2),
            reward=AdversarialReward(AdversarialReward.Options()),
            seed=9,
        ),
        store=CheckpointStore(folder, keep=5),
    )
