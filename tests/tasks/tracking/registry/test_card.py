from dataclasses import replace

from each_row import each_row
from registry_project import examined

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import Belief, CalibrationNote, CategoryRates
from tasks.records.models import Parent
from tasks.tracking.registry.card import INTENDED_USE, belief_lines, model_card

EVALUATION = examined()
CARD = model_card(
    evaluation=EVALUATION,
    target="7a" * 32,
    scorer="profanity",
    algorithm="dpo",
    seed=11,
    digest="c0" * 32,
)


def test_the_result_stands_beside_the_untrained_attackers():
    assert (
        "Attack success 60.0% [50.0%, 70.0%] against 20.0% [10.0%, 30.0%] untrained, "
        "gain +40.0 points [+30.0, +50.0], on 40 test prompts"
    ) in CARD
    assert "score at or above 0.5" in CARD


def test_the_card_names_what_it_is_about():
    for named in (f"`{'7a' * 8}`", "`profanity`", f"`{'c0' * 8}`", f"`{'e7' * 8}`"):
        assert named in CARD
    assert "Algorithm dpo, seed 11," in CARD


@each_row(
    ("parent", "words"),
    [
        (Parent("d1" * 32, model_name="attacker", version="3"), "attacker version 3"),
        (Parent("d1" * 32, run_key="k"), "attacker d1d1d1d1d1d1"),
    ],
)
def test_the_card_names_the_attacker_that_was_trained_on(parent, words):
    card = model_card(
        evaluation=EVALUATION,
        target="7a" * 32,
        scorer="profanity",
        algorithm="dpo",
        seed=11,
        digest="c0" * 32,
        parent=parent,
    )

    assert f"\nTrained on from {words}, which" in card
    assert "Trained on" not in CARD


def test_the_card_says_how_far_the_judge_can_be_believed():
    span = Interval(0.5, 0.25, 0.75)
    names = ("corrected_attack", "corrected_attempt", "confirmed_attack")
    figures = {f"{name}_success_rate": span for name in names}
    figures |= {"judge_agreement": span, "judge_kappa": span}
    note = CalibrationNote("a judge 1.0", "ab" * 32, 200, sensitivity=span, specificity=span)
    evaluation = replace(
        EVALUATION,
        attacker={**EVALUATION.attacker, **figures},
        baseline={**EVALUATION.baseline, **figures},
        belief=Belief(note, corrected_lift=span, second_judge="judge 2", confirmed_lift=span),
    )
    rows = "of 200 labelled ones"
    told, gain = "50.0% [25.0%, 75.0%]", "gain +50.0 points [+25.0, +75.0]"

    assert [
        f"The judge flags {told} of bad and passes {told} of harmless replies, {rows}.",
        f"Share of bad replies {told} against {told} untrained.",
        f"Attack success corrected for its errors {told} against {told} untrained, {gain}.",
        f"Attack success that `judge 2` confirms {told} against {told} untrained, {gain}.",
        f"The two judges agree on {told} of replies, kappa 0.500 [0.250, 0.750].",
    ] == belief_lines(evaluation)
    assert [] == belief_lines(EVALUATION)
    assert [] == belief_lines(replace(EVALUATION, belief=Belief(second_judge="judge 2")))


def test_nothing_of_the_form_is_left_open():
    assert not set("{}") & set(CARD)
    # A list of versions shows the beginning.
    assert CARD.startswith("Attack success 60.0% [50.0%, 70.0%], untrained 20.0% ")
    assert CARD.endswith(".\n")


def test_the_card_says_what_the_version_may_be_used_for():
    assert f"## Intended use: {INTENDED_USE}\n" in CARD
    assert "## Not to be used for\n" in CARD
    assert "## Limits\n" in CARD


def test_the_card_has_a_table_of_categories_where_there_are_some():
    rate = EVALUATION.rate()
    rates = {"fraud": CategoryRates(7, rate, rate, EVALUATION.lift)}
    card = model_card(
        evaluation=replace(EVALUATION, categories=rates),
        target="7a" * 32,
        scorer="profanity",
        algorithm="dpo",
        seed=11,
        digest="c0" * 32,
    )

    assert "\n\n| category | prompts | untrained | trained | gain |\n" in card
    assert "| fraud | 7 | 60.0% [50.0%, 70.0%] |" in card
    assert "category" not in CARD
