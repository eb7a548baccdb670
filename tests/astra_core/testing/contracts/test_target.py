from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from astra_core.errors import TargetError
from astra_core.models.language_model import Continuations, Utterance
from astra_core.testing import check_target, tiny_language_model


@pytest.mark.parametrize("vocabulary", ["words", "bytes"])
def test_a_language_model_keeps_the_contract(vocabulary):
    other = {} if vocabulary == "words" else {"vocabulary": None}
    check_target(tiny_language_model(7, **other))


class Echo:
    """A target of one's own: no model, characters as ids, the last words as the reply."""

    max_positions = 512
    opening_ids = ()
    device = torch.device("meta")

    def vocabulary_digest(self):
        return "characters"

    def encode(self, text):
        return tuple(map(ord, text))

    def closed(self, token_ids):
        ids = tuple(token_ids)
        return ids if ids[-1:] == (10,) else (*ids, 10)

    def reply(self, context, _key):
        ids = tuple(context)[-4:-1]
        return Utterance("".join(map(chr, ids)), ids, (), has_ended=True)

    def continuations(self, contexts, keys, _generation, **_more):
        return [
            Continuations(tuple(self.reply(context, key) for key in own), ())
            for context, own in zip(contexts, keys, strict=True)
        ]

    def read(self, _contexts, **_):
        pass

    def remembering(self, _max_bytes, **_):
        return nullcontext()


def test_a_target_without_a_model_keeps_the_contract():
    check_target(Echo())


class _Half:
    max_positions = 512


class _Shouting(Echo):
    """Its ids are no ids."""

    def encode(self, text):
        return text.split()


class _Doubling(Echo):
    def closed(self, token_ids):
        return (*token_ids, 10)


class _Fickle(Echo):
    count = 0

    def vocabulary_digest(self):
        self.count += 1
        return str(self.count)


class _Narrow(Echo):
    max_positions = 6


class _Moody(Echo):
    """What it says depends on how often it was asked."""

    count = 0

    def reply(self, context, key):
        self.count += 1
        return replace(super().reply(context, key), text=str(self.count))


class _Sociable(Echo):
    """What it says depends on who else is asked."""

    def continuations(self, contexts, keys, generation, **more):
        answers = super().continuations(contexts, keys, generation, **more)
        return [
            replace(
                own, utterances=tuple(replace(u, text=str(len(contexts))) for u in own.utterances)
            )
            for own in answers
        ]


class _Absent(Echo):
    def continuations(self, contexts, keys, generation, **more):
        return super().continuations(contexts[1:], keys[1:], generation, **more)


class _Demanding(Echo):
    def continuations(self, contexts, keys, generation, **more):
        return super().continuations(contexts, keys, generation, **more) or [None]


class _Single(Echo):
    def continuations(self, contexts, keys, generation, **more):
        return super().continuations(contexts, [own[:1] for own in keys], generation, **more)


class _Endless(Echo):
    def reply(self, _context, _key):
        return Utterance("a" * 99, (97,) * 99, (), has_ended=True)


class _Likely(Echo):
    def continuations(self, contexts, keys, generation, *, suffix_lengths=None, **more):
        answers = super().continuations(contexts, keys, generation, **more)
        lengths = suffix_lengths or [0] * len(contexts)
        return [
            replace(own, suffix_logprobs=(self.value,) * (count + self.extra))
            for own, count in zip(answers, lengths, strict=True)
        ]

    value, extra = 0.5, 0


class _Longer(_Likely):
    value, extra = -1.0, 1


class _Forgets(Echo):
    """Answers otherwise once it remembers."""

    is_remembering = False

    def remembering(self, _max_bytes, **_):
        self.is_remembering = True
        return nullcontext()

    def reply(self, context, key):
        return replace(super().reply(context, key), text=str(self.is_remembering))


class _Trained(Echo):
    model = torch.nn.Linear(1, 1)


class _Failing(Echo):
    """Fails in long conversations alone."""

    def continuations(self, contexts, keys, generation, **more):
        if max(map(len, contexts), default=0) > 32:
            msg = "too long"
            raise TargetError(msg)
        return super().continuations(contexts, keys, generation, **more)


@pytest.mark.parametrize(
    ("target", "promise"),
    [
        (_Half, r"every member of Target, got none of \['closed', 'continuations', 'device'"),
        (_Shouting, "encode gives a tuple of ids"),
        (_Doubling, "not closed again"),
        (_Fickle, "a text that stays"),
        (_Narrow, "room for a reply, got 6"),
        (_Moody, "changes? no reply"),
        (_Sociable, "the other contexts change no reply"),
        (_Absent, "one answer per context, got 2"),
        (_Demanding, "no context gives no answer"),
        (_Single, "one reply per key"),
        (_Endless, "1 to 6 ids, got 99"),
        (_Likely, "not above 0"),
        (_Longer, "1 log-probabilities or none, got 2"),
        (_Forgets, "remembering changes no reply"),
        (_Trained, "takes a gradient"),
        (_Failing, "no turn of a rollout fails|of 6 turns failed"),
    ],
)
def test_a_target_that_breaks_a_promise_is_told_which(target, promise):
    with pytest.raises(AssertionError, match=promise):
        check_target(target())
