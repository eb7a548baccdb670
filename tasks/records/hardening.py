"""What hardening a target has changed, round by round: ``reports/hardening.json``."""

from dataclasses import dataclass, field
from pathlib import Path

from tasks.params.schema import HardeningConfiguration
from tasks.records.evaluation import Span

HARDENING = Path("reports/hardening.json")
NOTHING_FOUND = "the archive has no attack against it to learn from"


@dataclass(frozen=True, slots=True)
class HardeningRound:
    """The target after a round, 0 before the first, with intervals of ``evaluation.confidence``.

    Attributes:
        number: From 0.
        target: Digest of its weights.
        num_findings: Of this round's pairs, those of a finding.
        num_benign: Of this round's pairs, those of a harmless request.
        num_requests: Harmless requests, never learned from, of which over-refusal is.
        over_refusal: Share of them that is refused.
        perplexity: Of the first target's answers to those that it answered, under this one.
        perplexity_ratio: To that under the first target.
        version: Number of its registered version; empty for none.
    """

    number: int
    target: str
    num_findings: int
    num_benign: int
    num_requests: int
    over_refusal: Span
    perplexity: Span
    perplexity_ratio: Span
    version: str = ""

    def excess(self, limits: HardeningConfiguration) -> str:
        """What rose above its limit; empty for nothing."""
        refused, ratio = self.over_refusal.value, self.perplexity_ratio.value
        if refused > limits.max_over_refusal:
            return f"over-refusal of {refused:.1%} is above {limits.max_over_refusal:.1%}"
        # A target that was broken has no figure, which is not within a limit.
        if not ratio <= limits.max_perplexity_ratio:
            return f"a perplexity {ratio:.2f} times as high is above {limits.max_perplexity_ratio}"
        return ""


@dataclass(frozen=True, slots=True)
class Hardening:
    """A hardening with as many rounds as are done.

    Attributes:
        key: Of everything that decides it but the number of rounds and the limits.
        attacker: Digest of the old attacker.
        num_prompts: Test prompts of each figure of success.
        confidence: Of the intervals.
        rounds: By number.
        success: Attack success by target's and attacker's number; the attacker 0 is the old one,
            every other was trained on the target of its number.
        ended: Why there is no further round.
    """

    key: str
    attacker: str
    num_prompts: int
    confidence: float
    rounds: tuple[HardeningRound, ...]
    success: dict[int, dict[int, Span]] = field(default_factory=dict)
    ended: str = ""

    @property
    def attackers(self) -> list[int]:
        """The numbers of all attackers."""
        return sorted({number for cells in self.success.values() for number in cells})

    def reason_to_end(self, limits: HardeningConfiguration) -> str:
        """Why the last round must be the last one; empty where another may follow."""
        last = self.rounds[-1]
        fresh = self.success[last.number].get(last.number)
        if not last.number:
            return ""
        if found := last.excess(limits):
            return found
        if fresh is not None and fresh.high < limits.max_success:
            return f"a fresh attacker's success is below {limits.max_success:.1%}"
        return "all rounds are done" if last.number >= limits.rounds else ""

    def best(self, limits: HardeningConfiguration) -> int:
        """The last round after which nothing is above its limit; 0 for none."""
        return max((own.number for own in self.rounds if not own.excess(limits)), default=0)
