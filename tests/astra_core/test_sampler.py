from collections import Counter

import pytest

from astra_core.errors import DataError
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.testing import tiny_prompts, tiny_system

SYSTEM = tiny_system()


def sampler(count, *, seed=0):
    return TreeSampler(
        TreeSampler.Options(),
        system=SYSTEM,
        prompts=tiny_prompts(count),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )


@pytest.mark.parametrize("count", [1, 3, 7, 10])
def test_every_prompt_comes_once_before_any_comes_twice(count):
    own = sampler(7)
    drawn = [prompt for iteration in range(7) for prompt in own.episodes(iteration, count)]

    for start in range(0, len(drawn), 7):
        assert set(own.prompts) == set(drawn[start : start + 7])
    assert {count} == set(Counter(drawn).values())


def test_episodes_are_a_function_of_seed_and_iteration_alone():
    own = sampler(7)

    assert own.episodes(3, 4) == sampler(7).episodes(3, 4)
    assert own.episodes(3, 4) != own.episodes(4, 4)
    assert [own.episodes(i, 4) for i in range(3)] != [
        sampler(7, seed=1).episodes(i, 4) for i in range(3)
    ]


def test_passes_over_the_prompts_differ_in_order():
    own = sampler(7)

    assert own.episodes(0, 7) != own.episodes(1, 7)


def test_episodes_need_a_prompt():
    with pytest.raises(DataError, match="at least one prompt"):
        sampler(0).episodes(0, 2)
