"""The contract of a target."""

import math
from collections.abc import Sequence
from typing import Any

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Failure
from astra_core.seeding import derive_key
from astra_core.target import Answer, Outcome, Reply, Target
from astra_core.targets.causal_lm import as_target, speaker_of
from astra_parts.testing.contracts.common import SEED, build_plugin, promise, tree_sampler
from astra_parts.testing.tiny import tiny_prompts, tiny_system

_TEXTS = ("you are bad", "why so", "they never said what we are")
_SHORT = GenerationConfiguration(max_new_tokens=6)
_CONFIG = SystemConfiguration(max_context_tokens=64, probe=_SHORT, response=_SHORT)


def check_target(target: Target | LanguageModel | str | type[Target], **options: Any) -> None:
    """Checks that an object may be the target of a ``System``.

    - It is derived from ``astra_core.target.Target``; ``digest`` is a text that stays, and
      ``works_on`` one of its three places.
    - ``respond`` gives one answer per conversation, in order, with one reply per key. Replies
      have a text, and ids only with the digest of their vocabulary. Log-probabilities of a probe
      are finite and not above 0, and come from a target that says ``can_score``.
    - A reply depends only on its conversation and key: not on the other conversations, their
      order, the size of a batch, what was read before, or caching.
    - Nothing in it takes a gradient.
    - A System with it can be rolled out, and none of its turns fails.

    Args:
        target: Ready to answer; or a built-in name, an import path, or the class.
        options: Of a target by its name or class, as in params.yaml.

    Raises AssertionError if a promise is broken, TargetError if it gave no answer.
    """
    ready = build_plugin("target", target, options) if isinstance(target, str | type) else target
    own = as_target(ready, _CONFIG)
    promise(isinstance(own, Target), f"it is a Target, got a {type(target).__name__}")
    digest = own.digest()
    promise(isinstance(digest, str) and digest == own.digest(), "digest is a text that stays")
    promise(own.works_on in {"cpu", "gpu", "elsewhere"}, f"works_on is a place, {own.works_on!r}")
    _check_answers(own)
    speaker = speaker_of(own)
    parameters: Any = getattr(getattr(speaker or own, "model", None), "parameters", list)
    promise(not any(p.requires_grad for p in parameters()), "no weight of it takes a gradient")
    _check_rollout(own)


def _check_answers(target: Target) -> None:
    asked = [Conversation(prompt) for prompt in tiny_prompts(len(_TEXTS))]
    asked = [own.say(Message("user", text)) for own, text in zip(asked, _TEXTS, strict=True)]
    keys = [[derive_key(SEED, "reply", number, place) for place in (0, 1)] for number in range(3)]
    answers = target.respond(asked, keys, _SHORT)
    promise(len(answers) == len(asked), f"one answer per conversation, got {len(answers)}")
    for answer, own in zip(answers, keys, strict=True):
        _check_answer(target, answer, num_replies=len(own))
    said = _replies(answers)
    with target.remembering(1 << 20):
        promise(
            _replies(target.respond(asked, keys, _SHORT)) == said, "remembering changes no reply"
        )
        again = target.respond(asked[::-1], keys[::-1], _SHORT, tokens_per_batch=1)
        promise(_replies(again)[::-1] == said, "the order and the batch change no reply")
    alone = [
        target.respond([conversation], [own], _SHORT)[0]
        for conversation, own in zip(asked, keys, strict=True)
    ]
    promise(not target.respond([], [], _SHORT), "no conversation gives no answer")
    promise(_replies(alone) == said, "the other conversations change no reply")


def _check_answer(target: Target, answer: Outcome, *, num_replies: int) -> None:
    if isinstance(answer, Failure):
        promise(holds=False, words=f"no call fails, got {answer.reason}")
        return
    promise(isinstance(answer, Answer), f"an answer is an Answer, got {type(answer)}")
    promise(len(answer.replies) == num_replies, "one reply per key")
    for reply in answer.replies:
        _check_reply(target, reply)
    logprobs = answer.probe_logprobs
    promise(target.can_score or not logprobs, "log-probabilities come where it says can_score")
    promise(bool(logprobs) or not target.can_score, "one that can_score gives log-probabilities")
    holds = all(math.isfinite(value) and value <= 0.0 for value in logprobs)
    promise(holds, "a log-probability is finite and not above 0")


def _check_reply(target: Target, reply: Reply) -> None:
    promise(isinstance(reply.text, str), "a reply has a text")
    promise(reply.finish_reason in {"stop", "length", "filter"}, "a reply says why it ended")
    promise(_are_ids(reply.token_ids), "the ids of a reply are a tuple of ids")
    holds = reply.vocabulary == (target.vocabulary if reply.token_ids else "")
    promise(holds, "a reply has the target's vocabulary where it has ids, and else none")
    most = _SHORT.max_new_tokens
    holds = len(reply.token_ids) <= most
    promise(holds, f"a reply has at most {most} ids, got {len(reply.token_ids)}")


def _check_rollout(target: Target) -> None:
    system, prompts = tiny_system(SEED, target=target, config=_CONFIG), tiny_prompts(2)
    sampler = tree_sampler(system, prompts, tree_width=2)
    # All turns may fail, so that the failure is reported here and not by the sampler.
    sampler.max_failed_fraction = 1.0
    nodes = [node for graph in sampler.roll_out(prompts, iteration=0) for node in graph.nodes()]
    promise(not any(node.has_failed for node in nodes), "no turn of a rollout fails")


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, tuple) and all(isinstance(each, int) and each >= 0 for each in ids)


def _replies(outcomes: Sequence[Outcome]) -> list[list[tuple[str, tuple[int, ...]]]]:
    return [
        [] if isinstance(own, Failure) else [(reply.text, reply.token_ids) for reply in own.replies]
        for own in outcomes
    ]
