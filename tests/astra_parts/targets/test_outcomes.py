import pytest

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.rollout import Failure, Prompt
from astra_core.target import Answer, Reply
from astra_parts.targets.calls import CallError, CallOptions, Calls, Question
from astra_parts.targets.kept import Kept
from astra_parts.targets.outcomes import CalledTarget


class Spoken(CalledTarget):
    def __init__(self, calls):
        self.calls = calls

    def digest(self):
        return "one"

    def asker(self, generation):
        del generation
        return lambda conversation, key: Question(f"{conversation.prompt.text} {key.decode()}", {})


def test_a_turn_has_all_of_its_replies_or_none(tmp_path):
    def ask(question):
        if question.key.endswith("bad"):
            raise CallError(kind="server", words="no", is_final=True)
        return Kept(question.key, "hm", "length", tokens_in=2, tokens_out=3)

    options = CallOptions(replies=tmp_path, prices={"input": 1.0, "output": 1.0})
    target = Spoken(Calls("target 'mine'", options, ask, file="mine"))
    said = [Conversation(Prompt(text, text)) for text in ("x", "y", "z")]
    keys = [(b"a", b"b"), (b"c", b"bad"), ()]

    first, second, third = target.respond(said, keys, GenerationConfiguration())

    assert (Reply("x a", finish_reason="length", thinking="hm"), "x b") == (
        first.replies[0],
        first.replies[1].text,
    )
    assert (2, 4, 6) == (first.usage.calls, first.usage.tokens_in, first.usage.tokens_out)
    assert 10e-6 == pytest.approx(first.usage.cost)
    assert Failure("target 'mine': no", "server") == second
    assert Answer(()) == third
