from functools import cache

import pytest
import torch
from each_row import each_row
from tiny_chats import PROMPTS, chat_system

from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.turn_estimates import _next_context, turn_estimates
from astra_parts.algorithms.value_head import ValueHead
from astra_parts.testing import (
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)


@cache
def shared_system():
    return tiny_system()


(PROMPT,) = tiny_prompts(1)
# Without a discount and with lambda 1, an advantage is the rest of the return less the value.
WHOLE = {"discount": 1.0, "turn_discount": 1.0, "decay": 1.0}


def expecting(value, system=None):
    """A value head that expects the same of every state."""
    head = ValueHead((system or shared_system()).attacker)
    with torch.no_grad():
        head.parameters()[1].fill_(value)
    return head


def nothing(node):
    return node.reward, [0.0] * len(node.probe_ids)


def estimates(*graphs, value=0.0, account=nothing, is_cut=False, **changes):
    return turn_estimates(
        graphs, shared_system(), expecting(value), account=account, is_cut=is_cut, **WHOLE | changes
    )


def test_every_token_of_a_turn_is_worth_what_comes_after_it():
    leaves = tiny_node(1.0, probe_ids=(6, 0)), tiny_node(0.0, probe_ids=(7, 8, 9, 0))
    first, good, bad = estimates(tiny_graph(tiny_node(0.5, *leaves)), turn_discount=0.5)

    # Two turns follow: half of their mean is 0.25.
    assert [0.75] * 3 == pytest.approx(first.advantages)
    assert [1.0] * 2 == pytest.approx(good.advantages)
    assert [0.0] * 4 == pytest.approx(bad.advantages)
    assert [0.75] * 3 == pytest.approx(first.returns)
    assert [(0,), (0, 0), (0, 1)] == [found.node.path for found in (first, good, bad)]


def test_the_discount_is_of_the_next_token():
    (found,) = estimates(tiny_graph(tiny_node(1.0)), discount=0.5)

    assert [0.25, 0.5, 1.0] == pytest.approx(found.advantages)


def test_costs_are_paid_at_their_tokens():
    (found,) = estimates(
        tiny_graph(tiny_node(1.0)), account=lambda node: (node.reward, [0.1, 0.2, 0.4])
    )

    assert [0.3, 0.4, 0.6] == pytest.approx(found.advantages)


def test_what_a_turn_earns_is_what_its_account_says():
    (found,) = estimates(tiny_graph(tiny_node(1.0)), account=lambda _: (0.3, [0.0] * 3))

    assert [0.3] * 3 == pytest.approx(found.advantages)


def test_an_advantage_is_what_was_better_than_expected():
    (found,) = estimates(tiny_graph(tiny_node(1.0)), value=0.4)

    assert [0.4] * 3 == pytest.approx(found.values)
    assert [0.6] * 3 == pytest.approx(found.advantages)
    assert [1.0] * 3 == pytest.approx(found.returns)


@each_row(("is_cut", "advantage"), [(False, 0.6), (True, 0.8)])
def test_after_the_last_turn_a_conversation_has_ended_or_was_cut(is_cut, advantage):
    (found,) = estimates(tiny_graph(tiny_node(1.0)), value=0.4, is_cut=is_cut, turn_discount=0.5)

    # Cut, half of the 0.4 that were to come counts too.
    assert [advantage] * 3 == pytest.approx(found.advantages)


def test_a_turn_that_failed_is_no_future(failing):
    lost = failing(tiny_node(0.9))
    cut, *others = estimates(
        tiny_graph(tiny_node(0.2, lost), failing(tiny_node(0.7))), value=0.5, is_cut=True
    )

    assert [] == others
    assert [0.2 + 0.5 - 0.5] * 3 == pytest.approx(cut.advantages)


def test_a_turn_without_trained_tokens_teaches_nothing_and_passes_its_worth_on():
    silent = tiny_node(0.25, tiny_node(0.5), probe_mask=(False,) * 3)
    first, last = estimates(tiny_graph(tiny_node(1.0, silent)))

    assert [1.75] * 3 == pytest.approx(first.advantages)
    assert [0.5] * 3 == pytest.approx(last.advantages)


def test_tokens_that_are_not_trained_have_no_advantage():
    (found,) = estimates(tiny_graph(tiny_node(1.0, probe_mask=(True, False, True))), value=0.4)

    assert [0.6, 0.0, 0.6] == pytest.approx(found.advantages)
    assert 0.0 == found.returns[1]


def test_graphs_do_not_know_each_other():
    one = tiny_graph(tiny_node(0.1, tiny_node(0.2)), tiny_node(0.3))
    other = tiny_graph(tiny_node(0.4), tiny_node(0.5, tiny_node(0.6)))
    together = estimates(one, other)

    assert [*estimates(one), *estimates(other)] == together
    assert [0.3, 0.3, 0.2, 0.4, 1.1, 0.6] == pytest.approx(
        [found.advantages[0] for found in together]
    )


def test_nothing_is_estimated_of_nothing():
    assert [] == estimates()
    assert [] == estimates(tiny_graph())


def test_what_would_be_read_next_is_the_conversation_with_every_turn_closed():
    assert (4, 5, 0, 2, 3, 0, 13, 0) == _next_context([tiny_node(1.0)], shared_system(), PROMPT)
    # An utterance that ran into its limit has no end of its own.
    open_ended = tiny_node(1.0, probe_ids=(2, 3), response_ids=((13,),))
    assert (4, 5, 0, 2, 3, 0, 13, 0) == _next_context([open_ended], shared_system(), PROMPT)


def test_what_would_be_read_next_keeps_its_newest_tokens():
    node = tiny_node(1.0, context_ids=(*[4] * 90, 0))
    following = _next_context([node], shared_system(), PROMPT)

    assert shared_system().context_limit(shared_system().attacker, 6) == len(following)
    assert (4, 0, 2, 3, 0, 13, 0) == following[-7:]


def test_a_reply_in_a_tokenizer_of_its_own_is_read_as_text():
    system = tiny_system(target=tiny_language_model(1, vocabulary=None))
    node = tiny_node(1.0, response_texts=("so kind",), response_ids=((200, 201, 0),))
    reply = system.attacker.closed_ids(system.attacker.encode("so kind"))

    assert not system.shares_tokenizer
    assert (4, 5, 0, 2, 3, 0, *reply) == _next_context([node], system, PROMPT)


def test_a_templated_attacker_would_read_its_next_context_by_the_template():
    system = chat_system()
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=1),
        system=system,
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )
    for graph in sampler.roll_out(PROMPTS, iteration=0):
        for node in graph.children:
            for following in node.children:
                assert following.context_ids == _next_context([node], system, graph.prompt)
    estimated = turn_estimates(
        sampler.roll_out(PROMPTS, iteration=0),
        system,
        expecting(0.5, system),
        account=nothing,
        is_cut=True,
        **WHOLE,
    )
    assert estimated
