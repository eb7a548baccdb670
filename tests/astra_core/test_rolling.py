import pickle

import pytest
import torch
from each_row import each_row
from safetensors.torch import save

from astra_core.config import Choice
from astra_core.errors import RolloutError
from astra_core.rolling import HereWork, Rolling, RollingWork, roll_shard
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_prompts, tiny_system

PROMPTS = tiny_prompts(3)
TREE = Choice(name="tree", options={"tree_width": 2, "tree_depth": 1, "num_responses": 1})
REWARD = Choice(name="adversarial", options={})


def work(**changed):
    """What a worker needs to roll the tiny System out."""
    given = {"sampler": TREE, "reward": REWARD, "prompts": tuple(PROMPTS), "seed": 3} | changed
    return RollingWork(tiny_system, "system of the test", **given)


def test_a_worker_makes_the_graphs_that_this_process_makes():
    sampler = work().prepare({})
    shard = Rolling(tuple(PROMPTS), 0)

    assert isinstance(sampler, TreeSampler)
    there = pickle.loads(pickle.dumps(work()))  # noqa: S301 - our own bytes
    assert HereWork(sampler).do(sampler, shard).graphs == there.do(there.prepare({}), shard).graphs


def test_a_system_is_loaded_once_by_a_worker():
    kept = {}

    assert work().prepare(kept).system is work(seed=4).prepare(kept).system


@each_row(
    "changed",
    [{"seed": 4}, {"prompts": tuple(PROMPTS[:2])}, {"reward": Choice(name="stress_testing")}],
)
def test_whatever_makes_another_sampler_has_another_key(changed):
    assert work().key == work().key != work(**changed).key


def test_weights_that_were_sent_are_loaded():
    own = work()
    sampler = own.prepare({})
    agent, model = next(iter(sampler.system.learners().items()))
    name, weight = next(iter(model.model.state_dict().items()))

    own.renew(sampler, save({f"{agent}/{name}": torch.full_like(weight, 0.5)}))

    assert bool((model.model.state_dict()[name] == 0.5).all())
    with pytest.raises(KeyError, match="must know every weight"):
        own.renew(sampler, save({f"{agent}/nothing": torch.zeros(1)}))


def test_all_turns_of_one_shard_may_fail_and_the_limit_is_as_before():
    sampler = work().prepare({})
    sampler.max_failed_fraction = -1.0

    roll_shard(sampler, Rolling(tuple(PROMPTS), 0))

    with pytest.raises(RolloutError, match="0 of 6 turns failed"):
        sampler.roll_out(PROMPTS, iteration=0)
