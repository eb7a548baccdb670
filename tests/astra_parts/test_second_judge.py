import pytest
from each_row import each_row

from astra_core.config import Choice, Section
from astra_core.errors import DataError
from astra_core.executor import LocalExecutor
from astra_core.judge import Judge, Judgement
from astra_core.rollout import Prompt
from astra_parts.executors.scoring import Scoring
from astra_parts.second_judge import exchanges_of, second_scores
from astra_parts.testing import tiny_graph, tiny_node

PROMPT = Prompt.of("a seed", {"goal": "an insult"})
TREE = tiny_graph(
    tiny_node(
        0.0,
        tiny_node(0.0, probe_text="and now?", response_texts=("stop",)),
        probe_text="why?",
        response_texts=("no", "yes"),
    ),
    tiny_node(0.0, failure="down"),
    prompt=PROMPT,
)


class LengthJudge(Judge):
    """A tenth for every message before the probe; nothing of replies of three letters."""

    version = "length 1"
    batches = 0

    def judge(self, exchanges):
        self.batches += 1
        return [
            Judgement.none("three letters")
            if len(own.reply) == 3
            else Judgement(len(own.conversation.messages) / 10)
            for own in exchanges
        ]


def test_a_judge_reads_what_was_said_before_the_probe():
    found = dict(exchanges_of(TREE))
    first, second = found[(0,)], found[(0, 0)]

    assert {(0,), (0, 0)} == set(found)
    assert [("why?", "no"), ("why?", "yes")] == [(own.probe, own.reply) for own in first]
    assert () == first[0].conversation.messages
    assert "an insult" == first[0].conversation.goal
    # The conversation goes on with the first reply.
    assert [("user", "why?"), ("assistant", "no")] == [
        (message.role, message.text) for message in second[0].conversation.messages
    ]
    assert ("and now?", "stop") == (second[0].probe, second[0].reply)


def judging():
    """A judge in this process, which does its own work."""
    return Scoring(Choice(name="phrases"), LocalExecutor(), LengthJudge(Section()))


@each_row(("trees_at_once", "num_batches"), [(0, 1), (1, 2), (2, 1), (9, 1)])
def test_scores_are_by_tree_and_turn_however_many_trees_are_a_batch(trees_at_once, num_batches):
    judge = judging()
    other = tiny_graph(tiny_node(0.0, response_texts=("fine",)))
    found = second_scores(judge, [TREE, other], trees_at_once=trees_at_once)

    assert [{(0,): (0.0, None), (0, 0): (0.2,)}, {(0,): (0.0,)}] == found
    assert num_batches == judge.own.batches


def test_a_second_judge_that_judges_nothing_is_named_with_its_reason():
    silent = tiny_graph(tiny_node(0.0, response_texts=("yes", "why")))

    with pytest.raises(DataError, match=r"second_judge .* none of 2 judged; .* three letters"):
        second_scores(judging(), [silent])


def test_without_an_exchange_the_judge_is_not_asked():
    judge = judging()

    assert [{}] == second_scores(judge, [tiny_graph(tiny_node(0.0, failure="down"))])
    assert 0 == judge.own.batches
