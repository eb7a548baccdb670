"""The plain way: one context at a time, each read from its start, every position through the head.

It is short, slow and made of transformers' own parts, so that it can be checked by reading. What
the library computes must equal it: the tests compare tokens and log-probabilities with it, and the
benchmarks time it. Its order of calls is that of ASTRA-RL (sisl/astra-rl, aa04b94): a recursion
with one ``generate`` for the probes after a context and one for the replies to them, a forward
pass for the likelihood of the probes, and (in ``plain_passes``) four for a loss over pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, cast

from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Context, Graph, Node, Path, Probe, Prompt, Replies
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.targets.causal_lm import speaker_of
from benchmarks.reference.plain_passes import Ids, plain_generate, plain_scores


@dataclass(frozen=True, slots=True)
class _Plan:
    system: System
    width: int
    depth: int
    num_responses: int
    seed: int
    purpose: str
    iteration: int
    is_keyed: bool

    def key(self, role: str, prompt: Prompt, path: Path) -> bytes:
        """Names one utterance, as ``TreeSampler`` does."""
        return derive_key(self.seed, self.purpose, role, self.iteration, prompt.prompt_id, path)


@dataclass(frozen=True, slots=True)
class _Place:
    """A conversation so far: its place in the tree, and what each side has read."""

    prompt: Prompt
    path: Path
    attacker_ids: Ids
    target_ids: Ids


def plain_rollout(
    system: System,
    prompts: Sequence[Prompt],
    *,
    tree_width: int,
    tree_depth: int,
    num_responses: int,
    seed: int = 0,
    purpose: str = "training",
    iteration: int = 0,
    draws: Literal["keyed", "native"] = "keyed",
) -> list[Graph]:
    """One tree per prompt, grown by recursion; scored but not rewarded.

    Args:
        system: Attacker, target, reference and scorer.
        prompts: The prompts from which the trees grow.
        tree_width: Probes after every context.
        tree_depth: Turns of a conversation.
        num_responses: Replies to every probe.
        seed: As the sampler's.
        purpose: As the sampler's; ``roll_out`` says ``training``.
        iteration: As the sampler's.
        draws: ``keyed`` takes the random numbers that ``TreeSampler`` takes, so that the tokens
            must agree, and scores every probe under attacker and reference. ``native`` leaves the
            drawing to transformers and torch's generator and those scores to the update, as
            ASTRA-RL does: this is what is timed.
    """
    plan = _Plan(
        system,
        tree_width,
        tree_depth,
        num_responses,
        seed,
        purpose,
        iteration,
        is_keyed=draws == "keyed",
    )
    attacker, target = system.attacker, target_of(system)
    return [
        Graph(
            prompt,
            iteration,
            _turns(plan, _Place(prompt, (), _opening(attacker, prompt), _opening(target, prompt))),
        )
        for prompt in prompts
    ]


def target_of(system: System) -> LanguageModel:
    """The target, which is a language model in every benchmark."""
    return cast(LanguageModel, speaker_of(system.target))


def _opening(model: LanguageModel, prompt: Prompt) -> Ids:
    return model.opening_ids + model.closed_ids(model.encode(prompt.text))


def _turns(plan: _Plan, place: _Place) -> tuple[Node, ...]:
    """The turns after a context, and by recursion all below them."""
    if len(place.path) == plan.depth:
        return ()
    nodes = _scored(plan.system, _answered(plan, place, _probed(plan, place)))
    return tuple(replace(node, children=_turns(plan, _next(plan, place, node))) for node in nodes)


def _probed(plan: _Plan, place: _Place) -> list[Node]:
    """Turns of which only the probe is known; all probes follow one context."""
    system, attacker, generation = plan.system, plan.system.attacker, plan.system.config.probe
    context = place.attacker_ids[-system.context_limit(attacker, generation.max_new_tokens) :]
    paths = [(*place.path, index) for index in range(plan.width)]
    contexts = [context] * plan.width
    keys = [plan.key("probe", place.prompt, path) for path in paths] if plan.is_keyed else None
    probes = plain_generate(attacker, contexts, generation, keys=keys)
    cut = len(place.attacker_ids) - len(context)
    nodes = [
        _opened(path, context, cut, probe=probe, text=attacker.decode(probe))
        for path, probe in zip(paths, probes, strict=True)
    ]
    if not plan.is_keyed:
        return nodes
    own = plain_scores(attacker, contexts, probes)
    reference = plain_scores(system.reference, contexts, probes)
    return [
        replace(node, probe=replace(node.probe, logprobs=logprobs, reference_logprobs=expected))
        for node, logprobs, expected in zip(nodes, own, reference, strict=True)
    ]


def _opened(path: Path, context: Ids, truncated: int, *, probe: Ids, text: str) -> Node:
    said = Probe(text, probe, (), (True,) * len(probe), score=math.nan)
    return Node(path, Context(context, truncated), said, Replies((), ()))


def _answered(plan: _Plan, place: _Place, nodes: list[Node]) -> list[Node]:
    """The turns with the target's replies and its likelihood of the probes."""
    system, generation = plan.system, plan.system.config.response
    target = target_of(system)
    limit = system.context_limit(target, generation.max_new_tokens)
    contexts = [(place.target_ids + _as_heard(system, node))[-limit:] for node in nodes]
    roles = [f"response {reply}" for reply in range(plan.num_responses)]
    keys = [plan.key(role, place.prompt, node.path) for node in nodes for role in roles]
    replies = plain_generate(
        target,
        [context for context in contexts for _ in roles],
        generation,
        keys=keys if plan.is_keyed else None,
    )
    groups = [replies[start : start + len(roles)] for start in range(0, len(replies), len(roles))]
    likelihoods = _likelihoods(system, nodes, contexts)
    return [
        replace(
            node,
            outcome=Replies(
                tuple(target.decode(reply) for reply in own), (), tuple(own), likelihood
            ),
        )
        for node, own, likelihood in zip(nodes, groups, likelihoods, strict=True)
    ]


def _likelihoods(system: System, nodes: list[Node], contexts: list[Ids]) -> list[tuple[float, ...]]:
    """Log-probabilities of the probes, which end the contexts that the target reads, nats."""
    heard = [len(_as_heard(system, node)) for node in nodes]
    cuts = [max(len(ids) - count, 1) for ids, count in zip(contexts, heard, strict=True)]
    values = plain_scores(
        target_of(system),
        [ids[:cut] for ids, cut in zip(contexts, cuts, strict=True)],
        [ids[cut:] for ids, cut in zip(contexts, cuts, strict=True)],
    )
    if not system.shares_tokenizer:
        return values
    # A separator that the target reads after a cut probe was not sampled.
    added = [max(count - len(node.probe_ids), 0) for count, node in zip(heard, nodes, strict=True)]
    return [own[: len(own) - extra] for own, extra in zip(values, added, strict=True)]


def _scored(system: System, nodes: list[Node]) -> list[Node]:
    scored = []
    for node in nodes:
        *scores, own = system.probe_scorer.score([*node.response_texts, node.probe_text])
        outcome = replace(node.replies, scores=tuple(scores))
        scored.append(replace(node, probe=replace(node.probe, score=own), outcome=outcome))
    return scored


def _next(plan: _Plan, place: _Place, node: Node) -> _Place:
    """The conversation after a turn; it continues with the first reply."""
    system, attacker, reply = plan.system, plan.system.attacker, node.response_ids[0]
    own = reply if system.shares_tokenizer else attacker.encode(node.response_texts[0])
    return _Place(
        place.prompt,
        node.path,
        place.attacker_ids + attacker.closed_ids(node.probe_ids) + attacker.closed_ids(own),
        place.target_ids + _as_heard(system, node) + target_of(system).closed_ids(reply),
    )


def _as_heard(system: System, node: Node) -> Ids:
    """A probe in the target's ids, closed by the separator."""
    if system.shares_tokenizer:
        return target_of(system).closed_ids(node.probe_ids)
    return target_of(system).closed_ids(target_of(system).encode(node.probe_text))


def share_of_differing_tokens(graphs: Sequence[Graph], others: Sequence[Graph]) -> float:
    """The share of tokens, probes and replies of two rollouts of one shape, that do not agree."""
    pairs = [
        pair
        for graph, other in zip(graphs, others, strict=True)
        for node, twin in zip(graph.nodes(), other.nodes(), strict=True)
        for own, theirs in zip(
            (node.probe_ids, *node.response_ids), (twin.probe_ids, *twin.response_ids), strict=True
        )
        for pair in zip_longest(own, theirs)
    ]
    num_differing = sum(1 for own, theirs in pairs if own != theirs)
    return num_differing / max(len(pairs), 1)
