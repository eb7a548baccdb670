"""The record of baselines at equal cost: ``reports/baselines.json``."""

from dataclasses import dataclass, field
from pathlib import Path

from astra_core.errors import DataError
from tasks.records.evaluation import Span
from tasks.records.reports import read_record

BASELINES = Path("reports/baselines.json")
TRAINED = "trained attacker"
UNTRAINED = "untrained attacker"


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """What one attacker reaches with as many replies of the target as every other.

    Attributes:
        replies: That the target was asked for.
        judged: Of them.
        success: Share of rollouts with a success, as an evaluation counts them.
        prompts_hit: Share of prompts with a success in any rollout.
        unique_hits: Different hits for each 1,000 replies; None for no reply.
        gain: The trained attacker's success minus this, paired by prompt; None for that one.
        model_calls: Of the chat model that plays the attacker; None where none does.
    """

    name: str
    replies: int
    judged: int
    success: Span
    prompts_hit: Span
    unique_hits: float | None
    gain: Span | None = None
    model_calls: int | None = None

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Its cells for a person, below ``HEAD``."""
        return (
            self.name,
            self.success.spelled(".1%"),
            self.prompts_hit.spelled(".1%"),
            "" if self.unique_hits is None else f"{self.unique_hits:,.0f}",
            "" if self.gain is None else self.gain.points(),
            f"{self.replies:,}, {self.judged:,} judged",
        )


HEAD = ("Attacker", "Success", "Prompts hit", "Different hits per 1,000", "Gain over it", "Replies")


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """Every attacker on the same prompts.

    Attributes:
        evaluation_key: Equal for equal examinations.
        attacker: The digest of the trained attacker's weights.
        left_out: Why, by the name of a baseline.
    """

    evaluation_key: str
    attacker: str
    num_prompts: int
    num_rollouts: int
    depth: int
    num_responses: int
    rows: tuple[BaselineRow, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """What a reader must know about the table, a line each."""
        cost = self.num_rollouts * self.depth * self.num_responses
        told = (
            f"{cost} replies of the target on each of {self.num_prompts} prompts: rollouts "
            f"{self.num_rollouts}, turns {self.depth}, replies to a probe {self.num_responses}"
        )
        names: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            names.setdefault(why, []).append(name)
        return [told, *(f"without {', '.join(own)}: {why}" for why, own in names.items())]


def baselines_of(attacker: str, evaluation_key: str) -> BaselineRecord | None:
    """The record of this attacker's examination, if it is the one on this machine.

    ``attacker``: the digest of its weights.
    """
    try:
        found = read_record(BASELINES, BaselineRecord)
    except DataError:
        return None
    is_its = (found.attacker, found.evaluation_key) == (attacker, evaluation_key)
    return found if is_its else None
