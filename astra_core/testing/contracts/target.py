"""The contract of a target."""

import math
from collections.abc import Sequence
from typing import Any

from astra_core.config import Choice, GenerationConfiguration, SystemConfiguration
from astra_core.models.language_model import Continuations
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import Target
from astra_core.testing.contracts.common import SEED, promise
from astra_core.testing.tiny import tiny_language_model, tiny_prompts

_TEXTS = ("you are bad", "why so", "they never said what we are")
_SHORT = GenerationConfiguration(max_new_tokens=6)


def check_target(target: Target) -> None:
    """Returns if an object may be the target of a ``System``.

    - It has all members of ``astra_core.target.Target``.
    - ``encode`` gives ids, ``closed`` closes an utterance once, ``vocabulary_digest`` is a text
      that stays, ``max_positions`` leaves room for a reply.
    - ``continuations`` gives one answer per context, in order, with one reply per key: a text and
      at most ``max_new_tokens`` ids. A context's log-probabilities are as many as were asked for,
      or none, and none is above 0.
    - A reply depends on its context and key alone: not on the other contexts, their order, the
      size of a batch, what was read before, or whether it is remembered.
    - Nothing in it takes a gradient.
    - A System with it can be rolled out, and none of its turns fails.

    Args:
        target: Ready to answer.

    Raises:
        AssertionError: A promise is broken.
        TargetError: It gave no answer.
    """
    members = sorted(name for name in dir(Target) if not name.startswith("_"))
    missing = [name for name in members if not hasattr(target, name)]
    promise(not missing, f"it has every member of Target, got none of {missing}")
    _check_text(target)
    _check_answers(target)
    parameters: Any = getattr(getattr(target, "model", None), "parameters", list)
    promise(not any(p.requires_grad for p in parameters()), "no weight of it takes a gradient")
    _check_rollout(target)


def _check_text(target: Target) -> None:
    for text in _TEXTS:
        ids = target.encode(text)
        promise(_are_ids(ids) and len(ids) > 0, f"encode gives a tuple of ids, got {ids!r}")
        closed = target.closed(ids)
        promise(_are_ids(closed) and len(closed) > 0, f"closed gives ids, got {closed!r}")
        promise(target.closed(closed) == closed, "what is closed is not closed again")
    promise(_are_ids(target.opening_ids), f"opening_ids are ids, got {target.opening_ids!r}")
    digest = target.vocabulary_digest()
    holds = isinstance(digest, str) and bool(digest) and digest == target.vocabulary_digest()
    promise(holds, "vocabulary_digest is a text that stays")
    room = target.max_positions
    promise(room > _SHORT.max_new_tokens, f"max_positions leaves room for a reply, got {room}")


def _check_answers(target: Target) -> None:
    contexts = [target.opening_ids + target.closed(target.encode(text)) for text in _TEXTS]
    keys = [[derive_key(SEED, "reply", number, place) for place in (0, 1)] for number in range(3)]
    lengths = [1, 0, len(contexts[2]) - 1]
    answers = target.continuations(contexts, keys, _SHORT, suffix_lengths=lengths)
    promise(len(answers) == len(contexts), f"one answer per context, got {len(answers)}")
    for answer, own, length in zip(answers, keys, lengths, strict=True):
        _check_answer(answer, num_replies=len(own), length=length)
    said = _spoken(answers)
    with target.remembering(1 << 20):
        promise(
            _spoken(target.continuations(contexts, keys, _SHORT)) == said,
            "remembering changes no reply",
        )
        target.read(contexts)
        again = target.continuations(contexts[::-1], keys[::-1], _SHORT, tokens_per_batch=1)
        promise(
            _spoken(again)[::-1] == said, "what was read, the order and the batch change no reply"
        )
    alone = [
        target.continuations([context], [own], _SHORT)[0]
        for context, own in zip(contexts, keys, strict=True)
    ]
    promise(not target.continuations([], [], _SHORT), "no context gives no answer")
    promise(_spoken(alone) == said, "the other contexts change no reply")


def _check_answer(answer: Continuations, *, num_replies: int, length: int) -> None:
    promise(isinstance(answer, Continuations), f"an answer is Continuations, got {type(answer)}")
    promise(len(answer.utterances) == num_replies, "one reply per key")
    for reply in answer.utterances:
        promise(isinstance(reply.text, str), "a reply has a text")
        holds = _are_ids(reply.token_ids) and 0 < len(reply.token_ids) <= _SHORT.max_new_tokens
        promise(holds, f"a reply has 1 to {_SHORT.max_new_tokens} ids, got {len(reply.token_ids)}")
    logprobs = answer.suffix_logprobs
    promise(
        len(logprobs) in {0, length}, f"{length} log-probabilities or none, got {len(logprobs)}"
    )
    holds = all(math.isfinite(value) and value <= 0.0 for value in logprobs)
    promise(holds, "a log-probability is finite and not above 0")


def _check_rollout(target: Target) -> None:
    attacker, reference = (tiny_language_model(SEED, is_trained=own) for own in (True, False))
    config = SystemConfiguration(max_context_tokens=64, probe=_SHORT, response=_SHORT)
    scorer = build("scorer", Choice(name="phrases", options={"phrases": ["bad", "worse"]}))
    system = System.of(attacker, target, reference, scorer=scorer, config=config)
    prompts, reward = tiny_prompts(2), AdversarialReward(AdversarialReward.Options())
    options = TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=2)
    # All may fail, so that it is told here and not by the sampler.
    sampler = TreeSampler(
        options, system=system, prompts=prompts, reward=reward, seed=SEED, max_failed_fraction=1.0
    )
    nodes = [node for graph in sampler.roll_out(prompts, iteration=0) for node in graph.nodes()]
    promise(not any(node.has_failed for node in nodes), "no turn of a rollout fails")


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, tuple) and all(isinstance(each, int) and each >= 0 for each in ids)


def _spoken(answers: Sequence[Continuations]) -> list[list[tuple[str, tuple[int, ...]]]]:
    return [[(reply.text, reply.token_ids) for reply in own.utterances] for own in answers]
