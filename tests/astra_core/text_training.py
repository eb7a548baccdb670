"""A tiny run of the trainer ``text``."""

import torch
from tiny_training import TALK, configured, sampler_of

from astra_core.registry import build
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.services.text_trainer import TextTrainer
from astra_parts.testing import tiny_system

IMITATION = {"name": "expert_iteration", "options": {"selection": "top_k", "k": 2}}


def trainer_of(folder, url, *, algorithm=IMITATION, **options):
    """A trainer as a new process would build it."""
    torch.manual_seed(0)
    attacker = {"base_url": url, "model": "tiny", "replies": str(folder / "replies")}
    own = {"min_examples": 2, "poll_s": 0.02, "job_limit_s": 60.0, "export": False}
    choice = {"name": "text", "options": {**own, **options, "attacker": attacker}}
    config = configured(trainer=choice, algorithm=algorithm, training_steps=2)
    system = tiny_system(0, config=TALK)
    algorithm = build("algorithm", config.algorithm, system=system)
    store = CheckpointStore(folder / "run", keep=5)
    return TextTrainer(config, sampler_of(system), algorithm, store=store)


def run(folder, url, **options):
    trainer = trainer_of(folder, url, **options)
    trainer.resume()
    trainer.train()
    return trainer
