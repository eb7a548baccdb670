from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.config import Section, SystemConfiguration
from astra_core.rollout import Failure
from astra_core.target import Answer, Reply, Surroundings, Target
from astra_parts.testing import check_target, tiny_language_model


@each_row("vocabulary", ["words", "bytes"])
def test_a_language_model_keeps_the_contract(vocabulary):
    other = {} if vocabulary == "words" else {"vocabulary": None}
    check_target(tiny_language_model(7, **other))


class Echo(Target):
    """A target of one's own: no model, the last words as the reply."""

    def __init__(self):
        super().__init__(Section(), surroundings=Surroundings(SystemConfiguration()))

    def digest(self):
        return "echo"

    def reply(self, conversation, _key):
        return Reply(conversation.messages[-1].text[-5:])

    def respond(self, conversations, keys, _generation, **_more):
        return [
            Answer(tuple(self.reply(conversation, key) for key in own))
            for conversation, own in zip(conversations, keys, strict=True)
        ]


@each_row("target", [Echo(), Echo])
def test_a_target_without_a_model_keeps_the_contract(target):
    check_target(target)


class _Loose:
    """No target at all."""


class _Fickle(Echo):
    count = 0

    def digest(self):
        self.count += 1
        return str(self.count)


class _Lost(Echo):
    works_on = "moon"


class _Moody(Echo):
    """What it says depends on how often it was asked."""

    count = 0

    def reply(self, conversation, key):
        self.count += 1
        return replace(super().reply(conversation, key), text=str(self.count))


class _Sociable(Echo):
    """What it says depends on who else is asked."""

    def respond(self, conversations, keys, generation, **more):
        answers = super().respond(conversations, keys, generation, **more)
        text = str(len(conversations))
        return [
            replace(own, replies=tuple(replace(reply, text=text) for reply in own.replies))
            for own in answers
        ]


class _Absent(Echo):
    def respond(self, conversations, keys, generation, **more):
        return super().respond(conversations[1:], keys[1:], generation, **more)


class _Demanding(Echo):
    def respond(self, conversations, keys, generation, **more):
        return super().respond(conversations, keys, generation, **more) or [None]


class _Single(Echo):
    def respond(self, conversations, keys, generation, **more):
        return super().respond(conversations, [own[:1] for own in keys], generation, **more)


class _Endless(Echo):
    vocabulary = "characters"

    def reply(self, _conversation, _key):
        return Reply("a" * 99, (97,) * 99, "characters")


class _Nameless(Echo):
    def reply(self, _conversation, _key):
        return Reply("a", (97,), "characters")


class _Breathless(Echo):
    def reply(self, conversation, key):
        return replace(super().reply(conversation, key), finish_reason="tired")


class _Likely(Echo):
    can_score = True
    value = 0.5

    def respond(self, conversations, keys, generation, **more):
        answers = super().respond(conversations, keys, generation, **more)
        return [replace(own, probe_logprobs=(self.value,)) for own in answers]


class _Boasting(Echo):
    can_score = True


class _Modest(_Likely):
    can_score, value = False, -1.0


class _Forgets(Echo):
    """Answers otherwise once it remembers."""

    is_remembering = False

    def remembering(self, _max_bytes, **_):
        self.is_remembering = True
        return nullcontext()

    def reply(self, conversation, key):
        return replace(super().reply(conversation, key), text=str(self.is_remembering))


class _Trained(Echo):
    model = torch.nn.Linear(1, 1)


class _Failing(Echo):
    def respond(self, conversations, *_, **__):
        return [Failure("http 503") for _ in conversations]


class _Tiring(Echo):
    """Fails in long conversations alone."""

    def respond(self, conversations, keys, generation, **more):
        answers = super().respond(conversations, keys, generation, **more)
        return [
            Failure("too long") if conversation.num_turns else own
            for conversation, own in zip(conversations, answers, strict=True)
        ]


@each_row(
    ("target", "promise"),
    [
        (_Loose, "it is a Target, got a _Loose"),
        (_Fickle, "a text that stays"),
        (_Lost, "works_on is a place"),
        (_Moody, "changes? no reply"),
        (_Sociable, "the other conversations change no reply"),
        (_Absent, "one answer per conversation, got 2"),
        (_Demanding, "no conversation gives no answer"),
        (_Single, "one reply per key"),
        (_Endless, "at most 6 ids, got 99"),
        (_Nameless, "vocabulary where it has ids"),
        (_Breathless, "why it ended"),
        (_Likely, "not above 0"),
        (_Boasting, "one that can_score gives"),
        (_Modest, "where it says can_score"),
        (_Forgets, "remembering changes no reply"),
        (_Trained, "takes a gradient"),
        (_Failing, "no call fails, got http 503"),
        (_Tiring, "no turn of a rollout fails"),
    ],
)
def test_a_target_that_breaks_a_promise_is_reported_with_it(target, promise):
    with pytest.raises(AssertionError, match=promise):
        check_target(target())
