"""A second judge's scores of rollouts that a first judge has rated."""

from collections.abc import Iterator, Sequence

from astra_core.conversation import Conversation, Message
from astra_core.errors import DataError
from astra_core.judge import Exchange
from astra_core.rollout import Graph, Node, Path
from astra_parts.executors.scoring import Scoring
from astra_parts.metrics.verdicts import Scores


def second_scores(
    judging: Scoring, graphs: Sequence[Graph], *, trees_at_once: int = 0
) -> list[Scores]:
    """For each tree the judge's scores of the replies of its turns, by the path of the turn.

    A turn that failed has none.

    ``trees_at_once``: trees whose exchanges are judged as one batch; 0 takes all.

    Raises ScorerError if the judge could not be reached, or gave something that is not a judgement;
    DataError if it judged none of the replies; PluginError if it failed.
    """
    asked = [list(exchanges_of(graph)) for graph in graphs]
    count = trees_at_once or max(len(asked), 1)
    groups = [asked[at : at + count] for at in range(0, len(asked), count)]
    batches = [
        [exchange for turns in group for _, exchanges in turns for exchange in exchanges]
        for group in groups
    ]
    found = judging.judgements([batch for batch in batches if batch])
    if found and all(own.score is None for own in found):
        msg = (
            f"evaluation.second_judge must judge some replies, got none of {len(found)} judged; "
            f"the first: {found[0].unjudged}"
        )
        raise DataError(msg)
    stream = iter(found)
    return [
        {path: tuple(next(stream).score for _ in exchanges) for path, exchanges in turns}
        for turns in asked
    ]


def exchanges_of(graph: Graph) -> Iterator[tuple[Path, list[Exchange]]]:
    """The exchanges of each turn that did not fail, one per reply."""
    yield from _below(graph.children, Conversation(graph.prompt))


def _below(nodes: Sequence[Node], before: Conversation) -> Iterator[tuple[Path, list[Exchange]]]:
    for node in nodes:
        if node.has_failed:
            continue
        probe, replies = node.probe_text, node.response_texts
        yield node.path, [Exchange(before, probe, reply) for reply in replies]
        # The conversation continues with the first reply.
        said = [Message("user", probe), *(Message("assistant", text) for text in replies[:1])]
        yield from _below(node.children, before.say(*said))
