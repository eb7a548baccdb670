import pytest
from each_row import each_row

from astra_parts.rewards.score_terms import Length, ProbeScore, ReplyScore
from astra_parts.rewards.term import turns_of
from astra_parts.testing import tiny_graph, tiny_node

SCORES = (0.2, 0.6, 0.7)


def value_of(term, node, **options):
    (value,) = term(term.Options(**options)).values(turns_of([tiny_graph(node)]))
    return value


@each_row(
    ("options", "expected"),
    [
        ({}, 0.5),
        ({"of": "mean"}, 0.5),
        ({"of": "max"}, 0.7),
        ({"of": "share"}, 2 / 3),
        ({"of": "share", "threshold": 0.65}, 1 / 3),
        ({"of": "k_of_n", "k": 2}, 1.0),
        ({"of": "k_of_n", "k": 3}, 0.0),
        ({"of": "k_of_n", "k": 2, "threshold": 0.65}, 0.0),
    ],
)
def test_several_replies_make_one_number(options, expected):
    node = tiny_node(0.0, response_scores=SCORES, response_texts=("a", "b", "c"))

    assert expected == pytest.approx(value_of(ReplyScore, node, **options))


def test_of_fewer_replies_than_k_all_must_reach_the_threshold():
    for score, expected in ((0.9, 1.0), (0.1, 0.0)):
        node = tiny_node(0.0, score=score)
        assert expected == value_of(ReplyScore, node, of="k_of_n", k=3)


def test_the_probe_has_its_own_score():
    assert 0.4 == value_of(ProbeScore, tiny_node(0.0, score=0.9, probe_score=0.4))


@each_row(
    ("tokens", "options", "expected"),
    [
        (3, {"shortest": 5}, 2.0),
        (5, {"shortest": 5}, 0.0),
        (9, {"shortest": 1, "longest": 6}, 3.0),
        (9, {"shortest": 1}, 0.0),
    ],
)
def test_tokens_outside_of_the_band_count(tokens, options, expected):
    assert expected == value_of(Length, tiny_node(0.0, probe_ids=(2,) * tokens), **options)
