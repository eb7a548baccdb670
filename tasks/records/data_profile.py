"""What a report says the accepted data are like, so that later data can be held against them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataProfile:
    """Counts in fixed bins, and what must be equal for two of them to compare.

    Attributes:
        num_independent: Rows that tell something of their own: near duplicates count once.
        counts: By what was counted; see ``tasks.expectations.profile``.
        attacker: Digest of the weights whose rollouts these are; empty of prompts.
    """

    judge: str
    num_independent: int
    counts: dict[str, list[int]]
    attacker: str = ""
