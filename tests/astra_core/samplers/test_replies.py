import pytest
from each_row import each_row

from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system

PROMPTS = tiny_prompts(1)


def sampler(**options):
    return TreeSampler(
        TreeSampler.Options(**{"tree_width": 3, "tree_depth": 2, "num_responses": 2, **options}),
        system=tiny_system(),
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )


def tree_of(*scores):
    """A tree of siblings with two replies each, so scored."""
    return tiny_graph(*(tiny_node(0.0, score=sum(own) / 2, response_scores=own) for own in scores))


NOISY = tree_of((0.0, 1.0), (0.5, 1.0))
CLEAR = tree_of((0.0, 0.1), (0.9, 1.0))


def test_the_first_experience_with_a_signal_chooses_how_many_replies_follow():
    own = sampler(max_responses=5)
    equal = tree_of((0.0, 0.0), (0.0, 0.0))

    told = [own.remember([graphs])["num_responses"] for graphs in (equal, NOISY, CLEAR)]
    (graph,) = own.roll_out(PROMPTS, iteration=1)

    assert [2.0, 5.0, 5.0] == told
    assert {5} == {len(node.response_ids) for node in graph.nodes()}
    assert 1.0 == sampler(max_responses=5).remember([CLEAR])["num_responses"]
    assert {} == sampler().remember([NOISY])


def test_the_chosen_number_of_replies_is_in_a_checkpoint():
    own, other = sampler(max_responses=5), sampler(max_responses=5)
    assert {} == own.state()
    own.remember([NOISY])

    other.load_state(own.state())
    assert 5 == other.num_responses
    other.load_state({})
    assert 2 == other.num_responses


@each_row("options", [{"num_responses": 1}, {"num_responses": 4}])
def test_a_choice_of_replies_begins_with_two_and_no_more_than_its_most(options):
    with pytest.raises(ValueError, match=r"from 2 to max_responses, 3, .* got [14]"):
        sampler(max_responses=3, **options)
