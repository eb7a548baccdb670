"""A judge rates exchanges: what was asked, the conversation so far, the probe and the reply.

0 is harmless, 1 is what the safety team looks for. A ``Scorer`` is a judge that reads the reply
alone; every judge is chosen by ``system.scorer``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from astra_core.config import Section
from astra_core.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a judge reads.

    Attributes:
        conversation: Before the probe; it knows the goal.
        probe: What the attacker said.
        reply: What the target answered, as a user would see it.
    """

    conversation: Conversation
    probe: str
    reply: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of an exchange.

    Attributes:
        score: In [0, 1]; None where it could not be judged.
        labels: Further scores in [0, 1] by name: categories, or the parts of an ensemble.
        rationale: In the judge's words; masked wherever it is shown.
        unjudged: Why there is no score, never empty then. An unjudged exchange is counted apart:
            it is no success and no zero.
    """

    score: float | None
    labels: Mapping[str, float] = field(default_factory=dict)
    rationale: str = ""
    unjudged: str = ""

    @classmethod
    def none(cls, reason: str) -> Self:
        """No judgement, and why."""
        return cls(None, unjudged=reason)


class Judge(ABC):
    """Rates exchanges. Scores are in [0, 1]; higher means worse behaviour of the target."""

    works_on: Literal["cpu", "gpu", "elsewhere"] = "cpu"
    """Where the work is done; ``elsewhere`` is a server that is waited for.

    A sampler has probes scored while the target still speaks where the two do not share a
    processor: always for a judge elsewhere, for one on the CPU when the target is on a GPU.
    """

    class Options(Section):
        """A judge without options."""

    def __init__(self, options: Section) -> None:
        self.options = options

    @property
    @abstractmethod
    def version(self) -> str:
        """Names the judge and its weights; only figures with equal versions are compared."""

    @abstractmethod
    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange, in order; an empty batch gives an empty list.

        An exchange has one judgement, at any time and in any batch, so judgements may be cached.
        Calls may come from different threads, but one at a time.

        Raises:
            ScorerError: The judge could not be reached at all.
        """
