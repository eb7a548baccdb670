from each_row import each_row

from astra_parts.testing import tiny_graph, tiny_node
from tasks.records.signal import faint_signal, missing_signal, signal_doubts


def node(*scores):
    return tiny_node(0.0, score=sum(scores) / len(scores), response_scores=scores)


@each_row(
    ("signal", "share", "way_out"),
    [
        (0.06, "6%", " (15.7 times as many would make it half), or set max_responses beside it"),
        (0.01, "1%", " (99.0 times as many would make it half), or set max_responses beside it"),
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


@each_row(
    ("signal", "share", "told"),
    [
        (0.75, 0.8, []),
        (0.25, 0.43, ["(3.0 times as many would", "scores account for 43% of what sets"]),
        (None, 0.43, ["scores account for 43%"]),
        (None, None, []),
    ],
)
def test_a_trial_doubts_what_the_first_rollouts_can_teach(signal, share, told):
    known = {"rollout/reply_signal": signal, "rollout/score_share": share}
    doubts = signal_doubts({name: own for name, own in known.items() if own is not None})

    assert len(told) == len(doubts)
    assert all(words in doubt for words, doubt in zip(told, doubts, strict=True))


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
