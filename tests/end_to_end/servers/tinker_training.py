"""Trains the shipped attacker at a server of the Tinker protocol, as one process of a run.

Prints the evaluations and the digest of the attacker at the end, as JSON. With ``die_at`` the
process kills itself at that stage boundary of its own, counted from 1.
"""

import argparse
import json
import os
import signal
import sys

from astra_core.config import Choice, EvaluationConfiguration, SystemConfiguration
from astra_core.files import record_digest
from astra_parts.presets import Assembly, hf_configuration, hf_trainer
from astra_parts.services.trainer_state import TrainerState
from tasks.builtin.openers import make_openers

SPOKEN = {"max_new_tokens": 12, "min_new_tokens": 0}


def die_at(boundary):
    """Kills this process once it has written down so many stages."""
    move, count = TrainerState.move_to, iter(range(1, 1000))

    def move_to(state, iteration, stage):
        move(state, iteration, stage)
        if next(count) == boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    TrainerState.move_to = move_to


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("address")
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--dev", type=int, default=4)
    parser.add_argument("--eval-every", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--die-at", type=int, default=0)
    own = parser.parse_args()
    if own.die_at:
        die_at(own.die_at)

    service = {"address": own.address, "base_model": own.model, "limit_s": own.limit_s}
    config = hf_configuration(
        trainer={"name": "remote", "options": service},
        algorithm={"name": "grpo"},
        training_steps=own.steps,
        num_episodes_per_experience=own.episodes,
        eval_every=own.eval_every,
        batch_size=32,
        epochs_per_experience=3,
        lr=3e-3,
        max_grad_norm=None,
        kl={"max_per_experience_nats": None},
        keep="last",
        checkpoint={"save_every": 1},
    )
    assembly = Assembly(
        system=SystemConfiguration.read(
            {"probe": SPOKEN, "response": SPOKEN, "max_context_tokens": 64}, where="system"
        ),
        sampler=Choice(name="tree", options={"tree_width": 4, "tree_depth": 2, "num_responses": 3}),
        evaluation=EvaluationConfiguration(num_training_prompts=own.dev, depth=1, num_rollouts=2),
        num_threads=1,
    )
    openers = [opener.text for opener in make_openers(400, seed=5)]
    trainer = hf_trainer(
        own.model,
        own.model,
        openers[:200],
        dev_prompts=openers[200:],
        folder=own.folder,
        config=config,
        assembly=assembly,
    )
    trainer.resume()
    trainer.train()
    weights = trainer.sampler.system.attacker.model.state_dict()
    found = [dict(point.metrics) for point in trainer.progress.evaluations]
    digest = record_digest({name: value.tolist() for name, value in weights.items()})
    sys.stdout.write(json.dumps({"evaluations": found, "digest": digest}) + "\n")


if __name__ == "__main__":
    main()
