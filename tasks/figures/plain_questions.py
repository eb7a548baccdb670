"""The prompts themselves, asked as they stand: what an attacker must be better than."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from astra_core.errors import BudgetError, TargetError
from astra_core.files import record_digest
from astra_core.metrics.statistics import paired_gain, rate_interval
from astra_core.redaction import mask
from astra_core.rollout import Prompt
from tasks.figures.examination import Examiner
from tasks.records.evaluation import PlainQuestions

if TYPE_CHECKING:
    from astra_core.system import System

TRIED_WITH = 8
"""Number of dev prompts with whose target each question is tried."""


def plain_questions(
    trained: Sequence[float],
    test: Sequence[Prompt],
    dev: Sequence[Prompt],
    *,
    examiner: Examiner,
    system: "System",
) -> PlainQuestions | None:
    """How often plain questions succeed on the test prompts, and the attacker's gain over the best.

    The best is chosen on dev prompts, and asked of the system's target as often as the attacker
    asks. None where the target's budget is spent, or it does not answer.
    """
    from astra_parts.samplers.rewording import asked_first

    evaluation, seed = examiner.params.evaluation, examiner.params.training_seed
    account = f"questions {record_digest([[each.prompt_id for each in (*dev, *test)], seed])[:16]}"

    def ask(questions: Sequence[tuple[Prompt, str]], num_replies: int) -> list[float]:
        with system.target.evaluating(), system.target.account_for(account):
            return asked_first(
                system,
                questions,
                num_replies=num_replies,
                threshold=evaluation.threshold,
                seed=seed,
            )

    tried = list(dict.fromkeys(prompt.text for prompt in dev))
    some = dev[:TRIED_WITH]
    count = evaluation.num_rollouts * evaluation.num_responses
    try:
        found = ask([(prompt, text) for text in tried for prompt in some], 1)
        means = [_mean(found[at : at + len(some)]) for at in range(0, len(found), len(some))]
        best = max(range(len(tried)), key=means.__getitem__)
        # Together: what the target reads before the questions of a prompt it reads once.
        both = ask(
            [(prompt, text) for prompt in test for text in (prompt.text, tried[best])], count
        )
    except (BudgetError, TargetError):
        return None
    options = examiner.believer.bootstrap
    ids = [prompt.prompt_id for prompt in test]
    own, others = both[::2], both[1::2]
    gains = [after - before for after, before in zip(trained, others, strict=True)]
    return PlainQuestions(
        num_tried=len(tried),
        best_question=mask(tried[best]),
        chosen_rate=means[best],
        own_rate=rate_interval(own, **options),
        best_rate=rate_interval(others, **options),
        lift=paired_gain(ids, gains, **options),
    )


def _mean(rates: Sequence[float]) -> float:
    known = [rate for rate in rates if not math.isnan(rate)]
    return sum(known) / len(known) if known else 0.0
