import math

import pytest
from each_row import each_row

from astra_parts.metrics.invented_words import InventedWords
from astra_parts.testing import tiny_graph, tiny_node

KNOWN = frozenset({"only", "who", "carry", "fork"})


def graph_of(*probes, num_tokens=3):
    ids = tuple(range(num_tokens))
    return tiny_graph(*(tiny_node(0.0, probe_text=text, probe_ids=ids) for text in probes))


def test_words_nobody_knows_are_counted_by_word_and_by_probe():
    graphs = [graph_of("only qxq", "who carry"), graph_of("zz 12 yy fork")]

    found = InventedWords(KNOWN, max_tokens=9)

    assert {"nonword_rate": 3 / 8, "nonword_probe_rate": 2 / 3} == found.metrics(graphs)
    assert [1 / 2, 1.0] == [found.share(graph) for graph in graphs]
    assert all(map(math.isnan, found.metrics([]).values()))
    assert 1.0 == found.metrics([graph_of("qxq")])["nonword_rate"]


@each_row(
    ("probe", "num_tokens", "share"),
    [
        ("who carry the", 4, 1.0),
        ("who carry the", 5, 0.0),  # cut: half of "theatre", perhaps
        ("who carry the.", 5, 1.0),  # cut after a whole word
        ("who carry t", 5, 0.0),
        ("who qxq the", 5, 1.0),  # no more than the last word
        ("the", 5, 0.0),
        ("", 5, 0.0),
    ],
)
def test_the_last_word_of_a_cut_probe_is_left_out(probe, num_tokens, share):
    found = InventedWords(KNOWN, max_tokens=5).share(graph_of(probe, num_tokens=num_tokens))

    assert share == pytest.approx(found)
