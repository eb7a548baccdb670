"""``reports/rollouts.json``: what the untrained attacker's rollouts are like."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RolloutsRecord:
    """Figures of the rollouts; means are over the turns that did not fail and were judged.

    Attributes:
        num_prompts: Trees, one for each run of a prompt.
        num_turns: In all trees.
        score_mean: Of a turn's replies.
        success_rate: Share of turns whose score is at least one half.
        reward_mean: As the algorithm is given it.
        target_nll_mean: Nats per token of the probes, under the target.
        scorer: Its version.
        system_precision: As params.yaml says, or as a trial settled it.
        checks: Of the rollout suite.
        num_unjudged: Replies that the judge could not judge: no success and no zero.
        target: What was used of a target elsewhere: calls, tokens, cost, seconds of a call.
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
