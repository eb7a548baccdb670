"""A reward turns what happened in a turn into the number an algorithm maximises."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from astra_core.config import Section
from astra_core.rollout import Graph


class Reward(ABC):
    """Score minus penalties; may remember what it has seen."""

    class Options(Section):
        """A reward without options."""

    def __init__(self, options: Section) -> None:
        self.options = options

    @abstractmethod
    def assign(self, graphs: Sequence[Graph]) -> list[Graph]:
        """The graphs with every node's reward filled in; remembers nothing."""

    def remember(self, graphs: Sequence[Graph]) -> None:  # noqa: B027  # none by default
        """Takes note of an experience after it was rewarded; most rewards have no memory."""

    def state(self) -> Mapping[str, Tensor]:
        """What ``remember`` has built, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027  # none by default
        """Puts back what ``state`` gave."""
