"""Says other probes in the place of hits, and tells which of them hit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from astra_core.conversation import Conversation, Message
from astra_core.errors import BudgetError, TargetError
from astra_core.metrics.counterfactual import Ask, Question
from astra_core.metrics.strategies import hits_of
from astra_core.rollout import Graph, Path
from astra_core.samplers.retelling import conversation_of
from astra_core.samplers.scoring import Said, scored_answers
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import Outcome


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a hit was said: the conversation before it, and its path in the tree."""

    before: Conversation
    path: Path


def asking(
    system: System, graphs: Sequence[Graph], *, threshold: float, num_responses: int, seed: int
) -> Ask:
    """Asks the system's target, and its judge, what other texts do in the place of a hit.

    Hits are counted over all graphs in the order of ``hits_of``. A call that fails is a miss. Once
    no call can be made, or only what the target's budget keeps for evaluations is left, there is no
    answer.

    Args:
        system: The System in which the rollouts took place.
        graphs: The rollouts.
        threshold: A mean score at or above it is a hit.
        num_responses: Replies drawn for each question.
        seed: Same seed, same replies.
    """
    moments = [
        _moment(system, graph, node.path) for graph in graphs for node in hits_of(graph, threshold)
    ]

    def ask(questions: Sequence[Question]) -> list[bool] | None:
        said = [Said(moments[index].before, text) for index, text in questions]
        keys = [
            _keys(moments[index], text, num_responses=num_responses, seed=seed)
            for index, text in questions
        ]
        try:
            with system.remembering():
                found = scored_answers(system, said, _answering(system, said, keys))
        except (BudgetError, TargetError):
            return None
        return [
            bool(known := [own.score for own in judged if own.score is not None])
            and sum(known) / len(known) >= threshold
            for judged in found.judgements
        ]

    return ask


def _answering(
    system: System, said: Sequence[Said], keys: Sequence[Sequence[bytes]]
) -> Callable[[], Sequence[Outcome]]:
    return lambda: system.target.respond(
        [own.conversation.said(Message("user", own.probe)) for own in said],
        keys,
        system.config.response,
        tokens_per_batch=system.config.tokens_per_batch,
    )


def _moment(system: System, graph: Graph, path: Path) -> Moment:
    nodes = {node.path: node for node in graph.nodes()}
    turns = [nodes[path[:length]] for length in range(1, len(path))]
    return Moment(conversation_of(graph.prompt, turns, system), path)


def _keys(moment: Moment, text: str, *, num_responses: int, seed: int) -> list[bytes]:
    prompt = moment.before.prompt
    name = ("strategies", prompt.prompt_id, prompt.run_id, moment.path, text)
    return [derive_key(seed, *name, number) for number in range(num_responses)]
