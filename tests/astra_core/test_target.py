import inspect

import pytest
from each_row import each_row

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import PluginError, TargetError
from astra_core.rollout import Failure
from astra_core.target import (
    Answer,
    Reply,
    Surroundings,
    Target,
    Usage,
    checked_digest,
    checked_figures,
    checked_outcomes,
)
from astra_core.targets.causal_lm import CausalLM
from astra_parts.testing import tiny_prompts

MEMBERS = sorted(name for name in vars(Target) if not name.startswith("_"))


def test_a_local_model_has_every_member_and_takes_the_same_arguments():
    for name in ("digest", "respond", "remembering"):
        own, promised = getattr(CausalLM, name), getattr(Target, name)
        assert list(inspect.signature(own).parameters) == list(
            inspect.signature(promised).parameters
        )


def test_every_method_says_what_it_is_for():
    assert {"respond", "digest"} <= set(MEMBERS)
    assert all(inspect.getdoc(getattr(Target, name)) for name in MEMBERS)


def test_a_reply_is_what_the_assistant_said():
    message = Reply("no", (3, 0), "words", thinking="well").message()

    assert ("assistant", "no", (3, 0)) == (message.role, message.text, message.ids_for("words"))
    assert () == message.ids_for("others")
    assert "well" == message.thinking


def test_usage_adds_up():
    assert Usage(3, 12, 4, 1.5, 0.25) == Usage(1, 5, 4, 1.0, 0.25) + Usage(2, 7, 0, 0.5)


class Given(Target):
    """Gives what it is told to, or raises it."""

    def __init__(self, given):
        super().__init__(surroundings=Surroundings(SystemConfiguration()))
        self.given = given

    def digest(self):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def figures(self):
        return self.digest()

    def respond(self, *_, **__):
        return self.digest()


def asked_of(given):
    talk = Conversation(tiny_prompts(1)[0]).say(Message("user", "why"))
    generation = GenerationConfiguration()
    return checked_outcomes(
        Given(given), [talk], [[b"a", b"b"]], generation=generation, tokens_per_batch=9
    )


@each_row(
    ("given", "got"),
    [
        (None, "a list of outcomes, got None"),
        ("yes", "a list of outcomes, got str"),
        ([], "one outcome per conversation, got 0 for 1"),
        (["yes"], "one Reply per key, or a Failure, got str"),
        ([Answer("ye")], "got str"),
        ([Answer((Reply("yes"),))], "got 1 replies for 2 keys"),
        ([Answer(("yes", "no"))], "got a reply that is str"),
        ([Answer((Reply("yes"), Reply(None)))], "got a text that is None"),
        ([Answer((Reply("yes"), Reply("\ud800")))], "got a text that is half of a character"),
        ([Answer((Reply("yes", finish_reason="eos"),) * 2)], "got a finish_reason that is none"),
        (KeyError("choices"), "not fail in respond, got KeyError"),
    ],
)
def test_what_is_no_outcome_is_one_line_that_names_the_target(given, got):
    with pytest.raises(PluginError, match=f"target '.*Given' must .*{got}"):
        asked_of(given)


def test_replies_and_failures_pass_and_a_target_that_is_down_says_so_itself():
    answer, failure = Answer((Reply("yes"), Reply("no"))), Failure("http 503")

    assert [[answer], [failure]] == [asked_of([answer]), asked_of([failure])]
    with pytest.raises(TargetError, match=r"^nobody there$"):
        asked_of(TargetError("nobody there"))


def test_a_digest_is_a_text_and_figures_are_numbers():
    assert "given" == checked_digest(Given("given"))
    assert {"calls": 3.0} == checked_figures(Given({"calls": 3}))
    with pytest.raises(PluginError, match="must give a text as digest, got 3"):
        checked_digest(Given(3))
    with pytest.raises(PluginError, match="must give a number by name from figures, got str"):
        checked_figures(Given({"calls": "many"}))
    for call in (checked_digest, checked_figures):
        with pytest.raises(PluginError, match=r"target '.*Given' must not fail in"):
            call(Given(KeyError("model")))
