"""Says given texts, in the place of hits or as first turns, and tells which of them hit."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from astra_core.conversation import Conversation, Message
from astra_core.errors import BudgetError, TargetError
from astra_core.models.spelling import as_read
from astra_core.rollout import Failure, Graph, Node, Path, Prompt
from astra_core.samplers.scoring import ProbeInConversation, scored_answers
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import Outcome
from astra_core.targets.causal_lm import CausalLM
from astra_parts.metrics.counterfactual import Ask, Question
from astra_parts.metrics.strategies import hits_of


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a hit was said: the conversation before it, and its path in the tree."""

    before: Conversation
    path: Path


def asking(
    system: System, graphs: Sequence[Graph], *, threshold: float, num_responses: int, seed: int
) -> Ask:
    """Asks the system's target, and its judge, what other texts do in the place of a hit.

    Hits are counted over all graphs in the order of ``hits_of``. A question that is there several
    times has other replies each time. A call that fails is a miss. Once
    no call can be made, or only what the target's budget keeps for evaluations is left, there is no
    answer.
    """
    moments = [
        _moment(system, graph, node.path) for graph in graphs for node in hits_of(graph, threshold)
    ]

    def ask(questions: Sequence[Question]) -> list[bool] | None:
        said = [ProbeInConversation(moments[index].before, text) for index, text in questions]
        times, keys = Counter[Question](), []
        for index, text in questions:
            numbers = range(times[index, text], times[index, text] + num_responses)
            keys.append(_keys(moments[index], text, numbers, seed=seed))
            times[index, text] += num_responses
        try:
            found = _scores_of(system, said, keys)
        except (BudgetError, TargetError):
            return None
        return [bool(known) and sum(known) / len(known) >= threshold for known in found]

    return ask


def asked_first(
    system: System,
    questions: Sequence[tuple[Prompt, str]],
    *,
    num_replies: int,
    threshold: float,
    seed: int,
) -> list[float]:
    """For each text the share of its replies that are successes, NaN if none was judged.

    ``system``: the System whose target and judge are asked; its attacker says nothing.
    """
    said, keys = _first_turns(questions, num_replies, seed=seed)
    return [
        sum(score >= threshold for score in known) / len(known) if known else math.nan
        for known in _scores_of(system, said, keys)
    ]


def first_replies(
    system: System, questions: Sequence[tuple[Prompt, str]], *, seed: int
) -> list[str | None]:
    """The target's reply to each text, unjudged; None where the call failed.

    Raises BudgetError if the rest of the budget does not cover them, TargetError if no call can be
    made at all.
    """
    said, keys = _first_turns(questions, 1, seed=seed)
    with system.remembering():
        # Not the attacker's words, so in no spelling of theirs.
        found = _answering(system, said, keys, spelling=None)()
    return [None if isinstance(own, Failure) else own.replies[0].text for own in found]


def _first_turns(
    questions: Sequence[tuple[Prompt, str]], num_replies: int, *, seed: int
) -> tuple[list[ProbeInConversation], list[list[bytes]]]:
    """The texts as first turns, and the keys of the replies to each."""
    said = [ProbeInConversation(Conversation(prompt), text) for prompt, text in questions]
    keys = [
        [
            derive_key(seed, "question", prompt.prompt_id, text, number)
            for number in range(num_replies)
        ]
        for prompt, text in questions
    ]
    return said, keys


def _scores_of(
    system: System, said: Sequence[ProbeInConversation], keys: Sequence[Sequence[bytes]]
) -> list[list[float]]:
    """For each text the scores of the replies that were judged."""
    with system.remembering():
        answer = _answering(system, said, keys, spelling=system.config.spelling)
        found = scored_answers(system, said, answer)
    return [[own.score for own in each if own.score is not None] for each in found.judgements]


def _answering(
    system: System,
    said: Sequence[ProbeInConversation],
    keys: Sequence[Sequence[bytes]],
    *,
    spelling: str | None,
) -> Callable[[], Sequence[Outcome]]:
    asked = (own.conversation.say(Message("user", own.probe)) for own in said)
    return lambda: system.respond([as_read(own, spelling) for own in asked], keys)


def _moment(system: System, graph: Graph, path: Path) -> Moment:
    nodes = {node.path: node for node in graph.nodes()}
    turns = [nodes[path[:length]] for length in range(1, len(path))]
    return Moment(conversation_of(graph.prompt, turns, system), path)


def _keys(moment: Moment, text: str, numbers: Iterable[int], *, seed: int) -> list[bytes]:
    prompt = moment.before.prompt
    name = ("strategies", prompt.prompt_id, prompt.run_id, moment.path, text)
    return [derive_key(seed, *name, number) for number in numbers]


def conversation_of(prompt: Prompt, turns: Sequence[Node], system: System) -> Conversation:
    """The conversation up to the end of the last of these turns, with the ids as sampled.

    ``turns``: the turns from the root on; each continued with its first reply.
    """
    found = Conversation(prompt)
    for turn, node in enumerate(turns):
        spoken = system.player(turn).format
        heard = spoken.thought(node.probe_ids)
        probe = Message("user", heard.text, heard.visible_ids, spoken.model.vocabulary)
        found = found.say(probe, _reply_of(node, system))
    return found


def _reply_of(node: Node, system: System) -> Message:
    text, target = node.response_texts[0], system.target
    if not (node.response_ids and isinstance(target, CausalLM)):
        return Message("assistant", text)
    ids = node.response_ids[0]
    thinking = target.format.thought(ids).thinking
    return Message("assistant", text, ids, target.vocabulary, thinking)
