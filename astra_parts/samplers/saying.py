"""Says given probes turn by turn, as if an attacker had sampled them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from astra_core.conversation import Message
from astra_core.models.utterances import Utterance
from astra_core.rollout import Context, Failure, Node, Probe, Prompt
from astra_core.samplers.level import Asked, Growth, Place, after, opening, responded

_UNSAMPLED = Utterance("", (), (), has_ended=True)


@dataclass(frozen=True, slots=True)
class Lines:
    """What is said in one conversation.

    Attributes:
        prompt: What the conversation is about.
        number: Its place among those of the same prompt, which decides its random numbers.
        probes: One per turn.
    """

    prompt: Prompt
    number: int
    probes: tuple[str, ...]


def conversations(growth: Growth, lines: Sequence[Lines]) -> list[Node]:
    """The first turn of each conversation, with the later ones below it; a failure ends it.

    Args:
        growth: What all conversations share.
        lines: Each with as many probes.
    """
    chains = [list[Node]() for _ in lines]
    places: dict[int, Place] = {at: opening(own.prompt) for at, own in enumerate(lines)}
    with growth.system.remembering():
        for turn in range(len(lines[0].probes) if lines else 0):
            asked = {at: _asked(place, lines[at], turn) for at, place in places.items()}
            found = responded(growth, list(asked.values()))
            columns = (asked.items(), found.outcomes, found.recorded, found.probe_scores)
            for (at, own), outcome, recorded, score in zip(*columns, strict=True):
                probe = Probe(own.heard, (), (), (), score=score)
                chains[at].append(Node(own.path, own.context, probe, recorded))
                if isinstance(outcome, Failure):
                    del places[at]
                else:
                    places[at] = after(own, outcome)
    return [_chained(chain) for chain in chains]


def _asked(place: Place, lines: Lines, turn: int) -> Asked:
    said = place.conversation.said(Message("user", lines.probes[turn]))
    path = (*place.path, 0 if turn else lines.number)
    return Asked(place, path, Context(()), _UNSAMPLED, said)


def _chained(turns: Sequence[Node]) -> Node:
    below: tuple[Node, ...] = ()
    for node in reversed(turns):
        below = (replace(node, children=below),)
    return below[0]
