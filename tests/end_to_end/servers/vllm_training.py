"""Trains the shipped attacker, which samples at a vLLM server, as one process of a run.

Prints the evaluations as JSON; what a server did not do is one line of standard error.
"""

import argparse
import json
import sys
from pathlib import Path

from astra_core.config import Choice, EvaluationConfiguration, SystemConfiguration
from astra_core.errors import RolloutError
from astra_parts.presets import Assembly, hf_configuration, hf_trainer
from tasks.builtin.openers import make_openers

SPOKEN = {"max_new_tokens": 12}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("base_url")
    parser.add_argument("model")
    own = parser.parse_args()
    replies = str(own.folder / "replies")
    server = {"base_url": own.base_url, "replies": replies, "retries": 1, "backoff_s": 0.1}
    server |= {"concurrency": 16}
    target = {"base_url": own.base_url, "model": "shipped", "api": "completions"}
    target |= {"timeout_s": 600.0, "concurrency": 16}
    config = hf_configuration(
        trainer={"name": "vllm", "options": server},
        algorithm={"name": "grpo"},
        lora={"rank": 8},
        staleness={"correction": "token"},
        training_steps=2,
        num_episodes_per_experience=8,
        eval_every=2,
        batch_size=32,
        epochs_per_experience=2,
        lr=3e-3,
        keep="last",
        checkpoint={"save_every": 1},
    )
    # The target is reached as a user reaches one behind vLLM: by text.
    given = {"name": "endpoint", "options": {**target, "separator": "<|end|>", "replies": replies}}
    talk = {"probe": SPOKEN, "response": SPOKEN, "max_context_tokens": 64, "target": given}
    assembly = Assembly(
        system=SystemConfiguration.read(talk, where="system"),
        sampler=Choice(name="tree", options={"tree_width": 3, "tree_depth": 2, "num_responses": 1}),
        reward=Choice(name="adversarial", options={"nll_weight": 0.0}),
        evaluation=EvaluationConfiguration(num_training_prompts=16, depth=1, num_rollouts=1),
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
    try:
        ratios = [report.metrics.get("rollout/importance_ratio") for report in trainer.steps()]
    except RolloutError as error:
        sys.exit(str(error))
    found = [dict(point.metrics) for point in trainer.progress.evaluations]
    sys.stdout.write(json.dumps({"evaluations": found, "ratios": ratios}) + "\n")


if __name__ == "__main__":
    main()
