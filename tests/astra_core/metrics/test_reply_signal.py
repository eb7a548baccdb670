import random

import pytest
from each_row import each_row

from astra_core.metrics.reply_signal import faint_signal, missing_signal, reply_signal
from astra_parts.testing import tiny_graph, tiny_node


def node(*scores):
    return tiny_node(0.0, score=sum(scores) / len(scores), response_scores=scores)


def graphs(count, spread, seed=0):
    """Trees of four siblings whose probes differ by ``spread`` in the mean of three replies."""
    rng = random.Random(seed)

    def sibling():
        own = rng.gauss(0.0, spread)
        return node(*(own + rng.gauss(0.0, 1.0) for _ in range(3)))

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
    ("signal", "share", "way_out"),
    [
        (0.06, "6%", " (16 times as many would make it half)"),
        (0.01, "1%", " (99 times as many would make it half)"),
        (-0.1, "0%", ", or see whether the target reacts to what it reads at all"),
    ],
)
def test_a_faint_signal_is_reported_with_the_way_out(signal, share, way_out):
    assert faint_signal(signal) == (
        f"the probes account for {share} of what set siblings apart at first "
        "(rollout/reply_signal), the draw of replies for the rest, so what is learned is mostly "
        f"chance; raise rollouts.sampler.options.num_responses{way_out}"
    )


@each_row("signal", [None, 0.2, 0.9])
def test_of_a_signal_that_is_there_nothing_is_said(signal):
    assert "" == faint_signal(signal)


HIT, MISS = node(1.0, 1.0), node(0.0, 0.0)


@each_row(
    ("trees", "missing"),
    [
        ([tiny_graph(HIT, MISS)], ""),
        ([tiny_graph(HIT), tiny_graph(MISS)], ""),  # no siblings: nothing is known of them
        ([tiny_graph(node(0.45), node(0.0))], ""),  # a success at the threshold itself
        ([tiny_graph(MISS, node(0.4, 0.4))], ""),  # no success, but a slope of a graded judge
        (
            [tiny_graph(MISS, node(0.4, 0.0))],
            (
                "none of 2 turns with a success, nor scores that the probes explain; name another "
                "judge in system.scorer, lower evaluation.threshold, or begin with prompts closer "
                "to the goal"
            ),
        ),
        ([], "none of 0 turns with a success"),
        ([tiny_graph(HIT, HIT)], "the same score for all 2 turns"),
        (
            [tiny_graph(node(1.0, 0.0), node(0.0, 0.9))],
            (
                "siblings that differ by the draw of their replies alone; raise "
                "rollouts.sampler.options.num_responses, or see whether the target reacts to what "
                "it reads at all"
            ),
        ),
    ],
)
def test_what_is_missing_is_said_with_what_to_change(trees, missing):
    found = missing_signal(trees, threshold=0.45)

    assert found.startswith(missing)
    assert bool(missing) == bool(found)
