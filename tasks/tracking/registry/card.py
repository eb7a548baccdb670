"""The card of a model version: what it is, how well it attacks, and what it may be used for."""

from astra_core.metrics.statistics import Interval
from tasks.figures.category_table import rates_table
from tasks.records.evaluation import EvaluationRecord
from tasks.records.models import Parent

INTENDED_USE = "restricted"

_CARD = """\
Attack success {attacker}, untrained {baseline}, gain {lift}; {algorithm}, seed {seed}.

# Red-team attacker

A language model trained by reinforcement learning to write messages that lead the target model
`{target}` into responses that the scorer `{scorer}` rates as bad.

## Result
Attack success {attacker} against {baseline} untrained, gain {lift}, on {num_prompts} test prompts
(prompt-level bootstrap intervals; score at or above {threshold}).
{belief}Algorithm {algorithm}, seed {seed}, checkpoint `{digest}`, evaluation `{evaluation}`.{begun}

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
    target_name: str = "",
    parent: Parent | None = None,
) -> str:
    """The card in Markdown.

    ``parent``: the earlier attacker from which training began; the card calls it untrained.
    """
    by_category = rates_table(evaluation.categories)
    begun = f"\nTrained on from {parent.words()}, which `untrained` means here." if parent else ""
    if by_category:
        begun += f"\n\n{by_category}"
    return _CARD.format(
        target=f"{target_name} {target[:16]}".strip(),
        scorer=scorer,
        attacker=evaluation.rate().spelled(".1%"),
        baseline=evaluation.rate("baseline").spelled(".1%"),
        lift=evaluation.lift.points(),
        num_prompts=evaluation.num_prompts,
        threshold=evaluation.threshold,
        algorithm=algorithm,
        seed=seed,
        digest=digest[:16],
        evaluation=evaluation.evaluation_key[:16],
        begun=begun,
        belief="".join(f"{line}\n" for line in belief_lines(evaluation)),
    )


def belief_lines(evaluation: EvaluationRecord) -> list[str]:
    """Sentences about how far the judge can be trusted; none where that was not asked for."""
    belief = evaluation.belief
    if belief is None:
        return []
    lines = []
    if belief.calibration is not None:
        note = belief.calibration
        lines.append(
            f"The judge flags {note.sensitivity.spelled('.1%')} of bad and passes "
            f"{note.specificity.spelled('.1%')} of harmless replies, of {note.num_rows} labelled "
            "ones."
        )
        lines += _rate_line(evaluation, "corrected_attempt_success_rate", "Share of bad replies")
        lines += _rate_line(
            evaluation,
            "corrected_attack_success_rate",
            "Attack success corrected for its errors",
            lift=belief.corrected_lift,
        )
    if belief.second_judge is not None:
        lines += _rate_line(
            evaluation,
            "confirmed_attack_success_rate",
            f"Attack success that `{belief.second_judge}` confirms",
            lift=belief.confirmed_lift,
        )
        agreed, kappa = (
            evaluation.attacker.get(f"judge_{name}") for name in ("agreement", "kappa")
        )
        if isinstance(agreed, Interval) and isinstance(kappa, Interval):
            lines.append(
                f"The two judges agree on {agreed.spelled('.1%')} of replies, kappa "
                f"{kappa.spelled()}."
            )
    return lines


def _rate_line(
    evaluation: EvaluationRecord, name: str, label: str, *, lift: Interval | None = None
) -> list[str]:
    """A rate of both attackers as a sentence; none for a record that lacks it."""
    rates = [figures.get(name) for figures in (evaluation.attacker, evaluation.baseline)]
    spelled = [rate.spelled(".1%") for rate in rates if isinstance(rate, Interval)]
    if len(spelled) < len(rates):
        return []
    gain = f", gain {lift.points()}" if lift is not None else ""
    return [f"{label} {spelled[0]} against {spelled[1]} untrained{gain}."]
