import pickle

import pytest

from astra_core.errors import ConfigurationError
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.settings.sizes import MOST_TEXTS, MOST_TURNS, refuse_many_texts
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system


def test_the_most_texts_are_allowed_and_one_turn_more_is_not():
    # 2 trees of 1 + 1 turns, each of a probe and replies.
    fits = MOST_TEXTS // 4 - 1
    refuse_many_texts("training", 2, (1, 1), num_responses=fits)

    with pytest.raises(ConfigurationError, match=r"training must ask for at most .* 2 trees"):
        refuse_many_texts("training", 2, (1, 1, 1), num_responses=fits)


def test_a_sampler_asks_before_it_samples_anything():
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=1000, tree_depth=100),
        system=tiny_system(),
        prompts=tiny_prompts(1),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=0,
    )
    with pytest.raises(ConfigurationError, match="width 1000 and depth 100"):
        sampler.roll_out(sampler.prompts, iteration=0)


def test_the_longest_conversation_can_be_sent_to_a_worker():
    node = tiny_node(0.5)
    for _ in range(MOST_TURNS - 1):
        node = tiny_node(0.5, node)
    graph = tiny_graph(node)

    assert graph == pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own bytes
