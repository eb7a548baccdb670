import pytest

from astra_core.metrics.statistics import Interval
from astra_core.rollout import Context, Failure, Graph, Node, Probe, Prompt, Replies
from tasks.figures.turns import TurnRecord, turn_rates
from tasks.records.reports import read_record, write_record

OPTIONS = {"threshold": 0.5, "num_resamples": 50, "confidence": 0.95, "seed": 0}


def _node(path, score, *children, reward=0.0):
    outcome = Failure("down") if score is None else Replies(("r",), (score,))
    return Node(path, Context(()), Probe("p", (), (), ()), outcome, reward, children)


def _graph(name, *children):
    return Graph(Prompt(name, name), 0, children)


# Of the first prompt's two rollouts one succeeds at once, the other in its second turn; the
# second prompt's one fails and then succeeds.
GRAPHS = [
    _graph(
        "a",
        _node((0,), 0.9, _node((0, 0), 0.1, reward=1.0), reward=1.0),
        _node((1,), 0.1, _node((1, 0), 0.5, reward=0.0), reward=0.0),
    ),
    _graph("b", _node((0,), None, _node((0, 0), 0.8, reward=1.0))),
]


def test_success_accumulates_turn_by_turn():
    found = turn_rates(GRAPHS, **OPTIONS)

    assert [0.25, 1.0] == [span.value for span in found.success]
    assert 0.75 == found.reward.value  # 0.5 and 1.0
    assert found == turn_rates(GRAPHS[::-1], **OPTIONS)


def test_the_threshold_decides():
    found = turn_rates(GRAPHS, **OPTIONS | {"threshold": 0.85})

    assert [0.25, 0.25] == [span.value for span in found.success]


def test_a_record_comes_back_as_it_was(tmp_path):
    own = turn_rates(GRAPHS, **OPTIONS)
    write_record(TurnRecord(own, own), tmp_path / "turns.json")

    assert TurnRecord(own, own) == read_record(tmp_path / "turns.json", TurnRecord)
    assert isinstance(own.reward, Interval)
    assert pytest.approx(1.0) == own.success[-1].high
