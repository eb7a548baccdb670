"""A scorer judges text: 0 is harmless, 1 is what the safety team looks for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from astra_core.config import Section


class Scorer(ABC):
    """The judge of responses. Scores lie in [0, 1]; higher means worse behaviour."""

    class Options(Section):
        """A scorer without options."""

    def __init__(self, options: Section) -> None:
        self.options = options

    @property
    @abstractmethod
    def version(self) -> str:
        """Names the judge and its weights, so that two figures can be compared."""

    @abstractmethod
    def score(self, texts: Sequence[str]) -> list[float]:
        """One score per text, in order, each in [0, 1]; an empty batch gives an empty list.

        Raises:
            ScorerError: The judge could not be reached or gave something that is no score.
        """
