"""The card of a model version: what it is, how well it attacks, and what it may be used for."""

from tasks.records.evaluation import EvaluationRecord
from tasks.records.models import Parent

INTENDED_USE = "restricted"

_CARD = """\
# Red-team attacker

A language model trained by reinforcement learning to write messages that lead the target model
`{target}` into responses that the scorer `{scorer}` rates as bad.

## Result
Attack success {attacker} against {baseline} untrained, gain {lift}, on {num_prompts} test prompts
(prompt-level bootstrap intervals; score at or above {threshold}).
Algorithm {algorithm}, seed {seed}, checkpoint `{digest}`, evaluation `{evaluation}`.{begun}

## Intended use: restricted
Finding and fixing weaknesses of the target named above, by the team that is answerable for it, on
systems they are authorised to test. Weights, probes and responses are for that team only.

## Not to be used for
Attacking systems without authorisation; producing abuse; content for people; training anything
other than defences. This is dual-use work: the same model that finds a weakness can exploit it.

## Limits
Success means what the scorer sees, which is not the same as harm. Figures hold for this target,
these prompts and these sampling settings only.
"""


def model_card(
    *,
    evaluation: EvaluationRecord,
    target: str,
    scorer: str,
    algorithm: str,
    seed: int,
    digest: str,
    parent: Parent | None = None,
) -> str:
    """The card in Markdown.

    Args:
        evaluation: The record in reports/evaluation.json.
        target: Digest of the target's weights.
        scorer: Name of the scorer.
        algorithm: Name of the algorithm.
        seed: The root seed.
        digest: Of the checkpoint's weights.
        parent: The earlier attacker that it was trained on from; it is the untrained one above.
    """
    begun = f"\nTrained on from {parent.spelled()}, which `untrained` means here." if parent else ""
    return _CARD.format(
        target=target[:16],
        scorer=scorer,
        attacker=evaluation.rate().spelled(),
        baseline=evaluation.rate("baseline").spelled(),
        lift=evaluation.lift.spelled(),
        num_prompts=evaluation.num_prompts,
        threshold=evaluation.threshold,
        algorithm=algorithm,
        seed=seed,
        digest=digest[:16],
        evaluation=evaluation.evaluation_key[:16],
        begun=begun,
    )
