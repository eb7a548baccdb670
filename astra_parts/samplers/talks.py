"""Conversations in which something other than the sampled attacker speaks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from astra_core.conversation import Conversation, Message
from astra_core.models.utterances import Utterance
from astra_core.rollout import Context, Failure, Graph, Node, Path, Probe, Prompt, Replies
from astra_core.samplers.level import Growth, Place, SampledProbe, after, record_of, scored_replies

_UNSAMPLED = Utterance("", (), (), has_ended=True)


@dataclass(slots=True)
class Talk:
    """A conversation while it is held.

    Attributes:
        conversation: What the target will have read before the next probe. Who speaks may change
            it, to take something back.
        number: Its place among those of the same prompt, which decides its random numbers.
        turns: What was said so far, without children.
    """

    conversation: Conversation
    number: int
    turns: list[Node] = field(default_factory=list)

    @property
    def prompt(self) -> Prompt:
        """The prompt that opens it."""
        return self.conversation.prompt

    @property
    def path(self) -> Path:
        """The place of the next turn in the tree."""
        return (self.number, *(0 for _ in self.turns))

    @property
    def is_over(self) -> bool:
        """True after a failure."""
        return bool(self.turns) and self.turns[-1].has_failed


Speak = Callable[[Sequence[Talk]], Sequence[str | Failure]]
"""The next probe of each conversation, or why there is none."""


def talks_of(prompts: Sequence[Prompt], count: int) -> list[Talk]:
    """``count`` conversations of each prompt, those of a prompt together."""
    return [Talk(Conversation(prompt), number) for prompt in prompts for number in range(count)]


def hold_talks(growth: Growth, talks: Sequence[Talk], speak: Speak, *, depth: int) -> list[Node]:
    """The first turn of each conversation, with the later ones below it; a failure ends it."""
    with growth.system.remembering():
        for _ in range(depth):
            alive = [talk for talk in talks if not talk.is_over]
            said = list(zip(alive, speak(alive), strict=True)) if alive else []
            for talk, own in said:
                if isinstance(own, Failure):
                    talk.turns.append(_turn(talk.path, "", own))
            _ask(growth, [(talk, own) for talk, own in said if isinstance(own, str)])
    return [chain_turns(talk.turns) for talk in talks]


def _ask(growth: Growth, said: Sequence[tuple[Talk, str]]) -> None:
    """Asks the target, and adds the turns to the conversations."""
    asked = [_probe(talk, text) for talk, text in said]
    found = scored_replies(growth, asked)
    columns = (said, asked, found.answers, found.judgements, found.probe_scores)
    for (talk, text), own, outcome, judged, score in zip(*columns, strict=True):
        talk.turns.append(_turn(own.path, text, record_of(outcome, judged), score=score))
        if not isinstance(outcome, Failure):
            talk.conversation = after(own, outcome).conversation


def _probe(talk: Talk, text: str) -> SampledProbe:
    said = talk.conversation.say(Message("user", text))
    place = Place(talk.path[:-1], talk.conversation)
    return SampledProbe(place, talk.path, Context(()), _UNSAMPLED, said)


def _turn(path: Path, text: str, outcome: Replies | Failure, *, score: float = 0.0) -> Node:
    probe = Probe(text, (), (), (), score=score)
    return Node(path, Context(()), probe, outcome)


def chain_turns(turns: Sequence[Node]) -> Node:
    """The first turn, with each later one below the one before."""
    below: tuple[Node, ...] = ()
    for node in reversed(turns):
        below = (replace(node, children=below),)
    return below[0]


def trees(prompts: Sequence[Prompt], turns: Sequence[Node]) -> list[Graph]:
    """The tree of each prompt; its first turns are together, as many for each."""
    count = len(turns) // max(len(prompts), 1)
    return [
        Graph(prompt, 0, tuple(turns[at * count : (at + 1) * count]))
        for at, prompt in enumerate(prompts)
    ]
