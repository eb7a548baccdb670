"""A term of the reward ``terms``: one quantity of a turn, which the reward weights and adds up."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from astra_core.reward import RewardPlugin
from astra_core.rewards.known_words import KnownWords, KnownWordsOptions
from astra_core.rollout import Graph, Node, Prompt
from astra_core.system import System


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was judged, and where its conversation began.

    ``prompt``: the prompt that opened it; its metadata may have a ``goal``.
    """

    prompt: Prompt
    opening_ids: tuple[int, ...]
    node: Node

    @property
    def text(self) -> str:
        """The probe for people."""
        return self.node.probe_text


class Term(RewardPlugin):
    """One quantity of a turn; may have a memory.

    Your own class is named by import path or file as the ``name`` of a term;
    ``astra_parts.testing.check_term`` checks what is promised here.
    """

    weight: ClassVar[float] = 1.0
    """Of the quantity in the reward where params.yaml names none; negative for what is unwanted."""

    is_novelty: ClassVar[bool] = False
    """True if it is a share of the probe that is new, in [0, 1]; nodes then carry it."""

    @abstractmethod
    def values(self, turns: Sequence[Turn]) -> list[float]:
        """One finite number per turn, in order; does not change the memory."""

    def remember(self, turns: Sequence[Turn]) -> None:  # most have no memory
        """Updates the memory with an experience that was rewarded."""


class KnownWordsTerm(Term):
    """A term that treats known words otherwise than invented ones; ``prepare`` learns them."""

    def __init__(self, options: KnownWordsOptions) -> None:
        super().__init__(options)
        self._known = KnownWords(options)

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Learns which words are known."""
        self._known.learn(system, prompts)


def turns_of(graphs: Sequence[Graph]) -> list[Turn]:
    """Every turn of the graphs that was judged, in their order."""
    return [
        Turn(graph.prompt, graph.children[0].context_ids, node)
        for graph in graphs
        for node in graph.nodes()
        if node.is_judged
    ]
