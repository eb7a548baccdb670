"""``reports/rollouts.json``: figures of the untrained attacker's rollouts."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RolloutsRecord:
    """Figures of the rollouts; means are over the turns that did not fail and were judged.

    Attributes:
        num_unjudged: Replies that the judge could not judge: no success and no zero.
        target: Use of a remote target: calls, tokens, cost, seconds per call.
    """

    num_prompts: int
    num_turns: int
    score_mean: float
    success_rate: float
    reward_mean: float
    target_nll_mean: float
    scorer: str
    system_precision: str
    checks: dict[str, Any]
    num_unjudged: int = 0
    target: dict[str, float] | None = None
