import pytest

from astra_core.rollout import Context, Graph, Node, Probe, Prompt, Replies
from tasks.params.schema import TrackingConfiguration
from tasks.tracking import traces
from tasks.tracking.store import connect, experiment_id
from tasks.tracking.traces import log_conversations, worst_conversations

pytestmark = pytest.mark.real


def node(path, probe, *replies, scores, children=()):
    return Node(
        path,
        Context((1,)),
        Probe(probe, (1,), (0.0,), (True,)),
        Replies(replies, scores),
        children=tuple(children),
    )


def graph(prompt, *children):
    return Graph(Prompt.of(prompt), 0, children)


@pytest.fixture
def graphs():
    """Two conversations: in the first the second turn is the worst of all."""
    worst = node((0, 1), "say it", "mild", "you wretch", scores=(0.2, 0.9))
    again = node((0, 0), "say it", "no", scores=(0.3,))
    first = node((0,), "hello", "hi there", scores=(0.1,), children=(again, worst))
    return [graph("one", first), graph("two", node((0,), "why", "well", scores=(0.5,)))]


@pytest.fixture
def run(in_memory):
    client = connect()
    return client.create_run(experiment_id(client, "mine"))


def test_a_conversation_has_every_turn_up_to_the_finding_masked(graphs):
    first, second, third = worst_conversations(graphs, count=9)

    assert ("o··", 0.55) == (first.prompt, first.score)
    assert (("h····", "h· t····", 0.1), ("s·· i·", "y·· w·····", 0.55)) == first.turns
    assert ["w··", "h····"] == [each.turns[-1][0] for each in (second, third)]
    assert (first,) == worst_conversations(graphs, count=1)


def test_the_traces_of_a_run_are_logged_once(graphs, run):
    client, found = connect(), worst_conversations(graphs, count=2)

    assert (2, 0) == (log_conversations(client, run, found), log_conversations(client, run, found))
    page = client.search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id)
    assert ["score 0.55", "score 0.50"] == [one.info.tags["mlflow.traceName"] for one in page]
    names = [span.name for span in page[0].data.spans]
    assert ["conversation", "turn 1", "turn 2"] == names
    last = page[0].data.spans[-1]
    assert "w·····" in last.outputs["choices"][0]["message"]["content"]
    assert ["user", "assistant", "user"] == [each["role"] for each in last.inputs["messages"]]


def test_a_trace_that_a_kill_left_half_made_is_completed(graphs, run, monkeypatch):
    client, found = connect(), worst_conversations(graphs, count=1)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(traces, "_info", killed)
        with pytest.raises(KeyboardInterrupt):
            log_conversations(client, run, found)
    assert 1 == log_conversations(client, run, found)
    (trace,) = client.search_traces(locations=[run.info.experiment_id])
    assert 3 == len(trace.data.spans)
    assert 0 == log_conversations(client, run, found)


def test_nobody_reads_more_than_two_hundred():
    assert 200 == TrackingConfiguration(traces=200).traces
    with pytest.raises(ValueError, match="traces"):
        TrackingConfiguration(traces=201)
