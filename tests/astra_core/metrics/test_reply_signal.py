import random

import pytest
from each_row import each_row

from astra_core.metrics.reply_signal import replies_for, reply_signal, score_share
from astra_parts.testing import tiny_graph, tiny_node


def node(*scores):
    return tiny_node(0.0, score=sum(scores) / len(scores), response_scores=scores)


def graphs(count, spread, seed=0, replies=3):
    """Trees of four siblings whose probes differ by ``spread`` in the mean of their replies."""
    rng = random.Random(seed)

    def sibling():
        own = rng.gauss(0.0, spread)
        return node(*(own + rng.gauss(0.0, 1.0) for _ in range(replies)))

    return [tiny_graph(*(sibling() for _ in range(4))) for _ in range(count)]


def test_it_is_the_reliability_of_a_small_table():
    # Means 0.2 and 0.6 vary by 0.08; the replies of each vary by 0.02, their mean by 0.01.
    graph = tiny_graph(node(0.1, 0.3), node(0.5, 0.7))

    assert 1 - 0.01 / 0.08 == pytest.approx(reply_signal([graph]))


def test_prompts_that_differ_are_no_signal():
    easy, hard = (
        tiny_graph(node(low, high), node(low, high)) for low, high in ((0, 0.1), (0.9, 1))
    )

    assert reply_signal([easy, hard]) is None
    assert reply_signal([easy, tiny_graph(node(0.0, 1.0), node(0.0, 0.9))]) < 0.0


@each_row(("spread", "expected"), [(0.0, 0.0), (1.0, 0.75), (3.0, 27 / 28)])
def test_a_target_that_does_not_react_gives_none(spread, expected):
    assert expected == pytest.approx(reply_signal(graphs(300, spread)), abs=0.08)


def test_one_reply_or_one_probe_cannot_tell():
    assert reply_signal([tiny_graph(node(0.2), node(0.8))]) is None
    assert reply_signal([tiny_graph(node(0.2, 0.8))]) is None
    assert reply_signal([]) is None


@each_row(
    ("signal", "num_replies", "expected"),
    [(0.5, 2, 8), (0.8, 3, 3), (0.9, 3, 2), (1.0, 3, 1), (0.1, 2, 12), (0.0, 2, 12), (-0.4, 2, 12)],
)
def test_more_replies_make_up_for_a_faint_signal(signal, num_replies, expected):
    assert expected == replies_for(signal, num_replies, share=0.8, at_most=12)


def test_as_many_replies_as_foretold_give_the_share_asked_for():
    # Where a probe differs by as much as a reply, one reply tells half.
    assert 4 == replies_for(0.5, 1, share=0.8, at_most=9)
    assert 0.8 == pytest.approx(reply_signal(graphs(600, 1.0, replies=4)), abs=0.03)


def node_worth(score, reward):
    return tiny_node(reward, score=score, response_scores=(score,))


def test_the_scores_share_of_rewards_is_that_within_siblings():
    # The other term is as large as the score and drawn apart from it; prompts differ by 5.
    tree = tiny_graph(*(node_worth(score, score + other) for score in (0, 1) for other in (5, 6)))
    alone = tiny_graph(node_worth(0.0, 9.0), node_worth(1.0, 10.0))
    unmoved = tiny_graph(node_worth(0.3, 1.0), node_worth(0.3, 2.0))

    assert 0.5 == pytest.approx(score_share([tree]))
    assert 1.0 == pytest.approx(score_share([alone]))
    assert 0.6 == pytest.approx(score_share([tree, alone]))
    assert 0.0 == score_share([unmoved])
    assert score_share([tiny_graph(node_worth(0.1, 1.0), node_worth(0.2, 1.0))]) is None
