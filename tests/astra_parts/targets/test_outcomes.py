import pytest

from astra_core.rollout import Failure
from astra_core.target import Answer, Reply
from astra_parts.targets.calls import CallError, CallOptions, Calls, Question
from astra_parts.targets.kept import Kept
from astra_parts.targets.outcomes import asked_for_each


def test_a_turn_has_all_of_its_replies_or_none(tmp_path):
    def ask(question):
        if question.key == "bad":
            raise CallError(kind="server", words="no", is_final=True)
        return Kept(question.key, "hm", "length", tokens_in=2, tokens_out=3)

    options = CallOptions(replies=tmp_path, prices={"input": 1.0, "output": 1.0})
    calls = Calls("target 'mine'", options, ask, file="mine")
    asked = [[Question(key, {}) for key in own] for own in (("a", "b"), ("c", "bad"), ())]

    first, second, third = asked_for_each(calls, asked)

    assert (Reply("a", finish_reason="length", thinking="hm"), "b") == (
        first.replies[0],
        first.replies[1].text,
    )
    assert (2, 4, 6) == (first.usage.calls, first.usage.tokens_in, first.usage.tokens_out)
    assert 10e-6 == pytest.approx(first.usage.cost)
    assert Failure("target 'mine': no", "server") == second
    assert Answer(()) == third
