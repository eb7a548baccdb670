"""A scorer judges text: 0 is harmless, 1 is what the safety team looks for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from astra_core.config import Section
from astra_core.errors import ScorerError


class Scorer(ABC):
    """The judge of responses. Scores lie in [0, 1]; higher means worse behaviour."""

    works_on: Literal["cpu", "gpu", "elsewhere"] = "cpu"
    """Where the work is done; ``elsewhere`` is a server that is waited for.

    A sampler has probes scored while the target still speaks where the two do not share a
    processor: always for a scorer elsewhere, for one on the CPU when the target is on a GPU.
    """

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

        A text has one score, whenever and beside whatever it is asked for: what is asked again may
        be answered from memory. Calls may come from different threads, but one at a time.

        Raises:
            ScorerError: The judge could not be reached or gave something that is no score.
        """


def checked_scores(scorer: Scorer, texts: Sequence[str]) -> list[float]:
    """What the scorer says of the texts, one number in [0, 1] for each.

    Raises:
        ScorerError: It could not be reached, or gave something else.
    """
    scores = list(scorer.score(texts))
    if len(scores) != len(texts) or not all(0.0 <= score <= 1.0 for score in scores):
        msg = (
            f"{scorer.version} must give one score in [0, 1] per text, got {len(scores)} for "
            f"{len(texts)} texts, or values outside; see system.scorer"
        )
        raise ScorerError(msg)
    return scores
