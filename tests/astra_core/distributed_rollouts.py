"""One of several processes that share rollouts: ``python distributed_rollouts.py FOLDER LIMITS``.

All turns of one prompt of the experience fail; a limit is the share of turns that may.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from tiny_training import sampler_of

from astra_core.algorithms.dpo import DPO
from astra_core.errors import RolloutError
from astra_core.rollout import Failure
from astra_core.samplers.tree import TreeSampler
from astra_core.training.distribution.distributed import World
from astra_core.training.harness import Harness
from astra_parts.testing import tiny_prompts, tiny_system

NUM_EPISODES = 5
LOST = tiny_prompts(5)[1].prompt_id


class RecordingSampler(TreeSampler):
    """Fails on one prompt, and knows what it was asked for."""

    asked = ()

    def roll_out(self, prompts, *, iteration):
        self.asked = [[prompt.prompt_id, prompt.run_id] for prompt in prompts]
        graphs = [_broken(graph) for graph in super().roll_out(prompts, iteration=iteration)]
        self.refuse_many_failures(graphs)
        return graphs


def _broken(graph):
    if graph.prompt.prompt_id != LOST:
        return graph
    return replace(
        graph, children=tuple(replace(n, outcome=Failure("lost")) for n in graph.children)
    )


def experience_of(limit, *, world=None, runs=1):
    """What an experience says, or why there is none, and the prompts rolled out here."""
    system = tiny_system(1)
    plain = sampler_of(system)
    sampler = RecordingSampler(
        plain.options,
        system=system,
        prompts=plain.prompts,
        reward=plain.reward,
        seed=plain.seed,
        max_failed_fraction=limit,
    )
    sampler.runs_per_prompt = runs
    algorithm = DPO(DPO.Options(), system=system)
    harness = Harness(sampler, algorithm, num_episodes=NUM_EPISODES, world=world)
    try:
        said = harness.experience(0).digest()
    except RolloutError as error:
        said = str(error)
    return {"said": said, "asked": sampler.asked, "limit": sampler.max_failed_fraction}


def main():
    torch.set_num_threads(1)
    folder, *limits = sys.argv[1:]
    world = World.join(timeout_s=90.0)
    found = {limit: experience_of(float(limit), world=world) for limit in limits}
    found["runs"] = experience_of(1.0, world=world, runs=3)
    Path(folder, f"experience_{world.rank}.json").write_text(json.dumps(found))
    world.leave()


if __name__ == "__main__":
    main()
