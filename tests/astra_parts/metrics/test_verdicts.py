import math

from astra_parts.metrics.verdicts import (
    confirmed_rate,
    num_unjudged,
    reply_verdicts,
    turn_verdicts,
    verdict_pairs,
)
from astra_parts.testing import tiny_graph, tiny_node

# Two rollouts of two turns, with two replies each.
TREE = tiny_graph(
    tiny_node(0.0, tiny_node(0.0, response_scores=(0.9, 0.2)), response_scores=(0.6, 0.8)),
    tiny_node(0.0, tiny_node(0.0, failure="down"), response_scores=(0.1, None)),
)
UNJUDGED = tiny_graph(tiny_node(0.0, response_scores=(None, None)))
FAILED = tiny_graph(tiny_node(0.0, failure="down"))
LIMITS = {"threshold": 0.5, "second_threshold": 0.5}
SECOND = {(0,): (0.9, 0.2), (0, 0): (0.4, None), (1,): (0.1, 0.9)}


def test_every_judged_reply_has_a_verdict():
    # Breadth first: the turns (0), (1) and (0, 0).
    found = [(True,), (True,), (False,), (True,), (False,)]

    assert found == reply_verdicts(TREE, threshold=0.5)
    assert 2 == sum(own == (True,) for own in reply_verdicts(TREE, threshold=0.7))


def test_a_turn_counts_by_the_mean_of_its_replies():
    # Means of 0.7, 0.55 and 0.1; the turn that failed has no verdict.
    assert [(True, True), (False,)] == turn_verdicts(TREE, threshold=0.5)
    assert [(True, False), (False,)] == turn_verdicts(TREE, threshold=0.6)


def test_where_the_judge_is_why_there_is_none_nothing_is_known():
    assert reply_verdicts(UNJUDGED, threshold=0.5) is None
    assert turn_verdicts(UNJUDGED, threshold=0.5) is None
    assert math.isnan(confirmed_rate(UNJUDGED, {}, **LIMITS))


def test_a_turn_that_failed_is_no_success():
    assert [] == reply_verdicts(FAILED, threshold=0.5)
    assert [()] == turn_verdicts(FAILED, threshold=0.5)
    assert 0.0 == confirmed_rate(FAILED, {}, **LIMITS)


def test_a_rollout_is_confirmed_where_both_flag_the_same_turn():
    # The first judge flags (0) and (0, 0), the second (0) with a mean of 0.55 and (1) with 0.5.
    assert 0.5 == confirmed_rate(TREE, SECOND, **LIMITS)
    assert 0.0 == confirmed_rate(TREE, SECOND, threshold=0.5, second_threshold=0.6)
    assert 0.0 == confirmed_rate(TREE, SECOND, threshold=0.8, second_threshold=0.5)


def test_what_the_second_judge_could_not_judge_is_not_confirmed():
    assert 0.0 == confirmed_rate(TREE, {(0,): (None, None)}, **LIMITS)


def test_verdicts_are_compared_on_replies_that_both_judged():
    pairs = [(True, True), (True, False), (False, False), (True, False)]

    assert sorted(pairs) == sorted(verdict_pairs(TREE, SECOND, **LIMITS))
    strict = verdict_pairs(TREE, SECOND, threshold=0.5, second_threshold=0.1)
    assert [True] * 4 == [other for _, other in strict]


def test_replies_that_the_second_judge_could_not_judge_are_counted():
    assert 3 == num_unjudged([SECOND, {(0,): (None, None)}])


def test_a_score_at_the_threshold_is_flagged():
    assert [(True,), (True,), (False,), (True,), (False,)] == reply_verdicts(TREE, threshold=0.6)
    assert [(True, True), (True,)] == turn_verdicts(TREE, threshold=0.1)
    # The first judge gives (1) 0.1, the second 0.5 in the mean.
    assert 1.0 == confirmed_rate(TREE, SECOND, threshold=0.1, second_threshold=0.5)
    pairs = verdict_pairs(TREE, SECOND, threshold=0.6, second_threshold=0.5)
    assert [True, True, True, False] == sorted((own for own, _ in pairs), reverse=True)


def test_a_turn_that_the_second_judge_never_saw_has_no_pair():
    assert [] == verdict_pairs(TREE, {}, **LIMITS)
