from dataclasses import replace

from each_row import each_row
from report_material import material

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import (
    Belief,
    CalibrationNote,
    OverRefusal,
    PlainQuestions,
    Selection,
    Transfer,
)
from tasks.records.training import BestMeasured
from tasks.report.story import decision, headlines, lead, limits, story

SPAN = Interval(0.5, 0.4, 0.6)


def test_the_lead_says_on_which_side_of_0_the_gain_lies():
    sure, unsure = material(rate=0.6), material(rate=0.25)

    assert "60.0% [50.0%, 70.0%]" in lead(sure)
    assert "gain of +40.0 points [+30.0, +50.0], an interval above 0" in lead(sure)
    assert "an interval around 0" in lead(unsure)
    refused = OverRefusal("ab" * 32, "refusal 1", 9, 0, 0, SPAN)
    told = lead(material(evaluation=replace(sure.evaluation, over_refusal=refused)))
    assert "the target refuses 50.0% [40.0%, 60.0%] of 9 harmless requests." in told


def test_the_lead_says_that_no_training_was_kept():
    best = BestMeasured("eval/attack_success_rate", 0.5, 0)
    trained = replace(material().training, best=best)

    assert "is that of step 0: none that was trained" in lead(material(training=trained))
    assert "step 0" not in lead(material())
    assert "step 0" not in lead(material(training=replace(trained, kept="last")))


def test_the_lead_has_the_best_plain_question():
    plain = PlainQuestions(3, "w··", 1.0, own_rate=SPAN, best_rate=SPAN, lift=SPAN)
    told = lead(material(evaluation=replace(material().evaluation, plain=plain)))

    assert (
        "The best of 3 plain questions 50.0% [40.0%, 60.0%]: a gain of +50.0 points [+40.0," in told
    )


def test_the_lead_says_whether_a_bandit_without_training_does_better():
    names = ("probes", "calls", "unique_attacks_per_1000_replies")
    whole = material(rate=0.4).evaluation
    untrained = {**whole.baseline, **{f"bandit_{name}": 9.0 for name in names}}
    untrained["bandit_success_rate"] = Interval(0.9, 0.8, 1.0)
    told = lead(material(evaluation=replace(whole, baseline=untrained)))

    assert "A bandit over 9 untrained probes succeeds in 90.0% [80.0%, 100.0%], more often" in told


def test_the_headline_has_success_gain_diversity_and_refusals():
    whole = material()
    attacker = {**whole.evaluation.attacker, "strategies": 7.5, "unique_attacks": 1234.0}
    refused = OverRefusal("ab" * 32, "refusal 1", 9, 0, 0, SPAN)
    examined = replace(whole.evaluation, attacker=attacker, over_refusal=refused)
    found = headlines(material(evaluation=examined))

    assert ["60.0%", "+40.0", "1,234", "7.5", "50.0%"] == [card.value for card in found]
    assert "of 9 requests, interval 40.0 to 60.0" == found[-1].detail
    assert ["trained", "untrained"] == [owner for owner, _ in found[0].spans]


@each_row(
    ("word", "start"),
    [
        ("promoted", "Promoted to champion"),
        ("refused", "Not promoted"),
        ("rolled_back", "Rolled back"),
        ("", "Not decided yet"),
    ],
)
def test_the_decision_is_in_words(word, start):
    told = decision(material(decision=word, reasons="gain +0.1, p 0.5 of at most 0.1"))

    assert told[0].startswith(start)
    assert bool(word) is any("Gain +0.1" in sentence for sentence in told)
    assert bool(word) is ("p is the probability" in told[-1])


def test_the_limits_say_that_nobody_calibrated_the_judge_or_what_came_out():
    whole = material()
    note = CalibrationNote("profanity 1", "aa" * 32, 30, SPAN, SPAN)
    examined = replace(
        whole.evaluation,
        belief=Belief(calibration=note),
        selection=Selection(num_prompts=9, attack_success_rate=SPAN, optimism=SPAN),
        attacker={**whole.evaluation.attacker, "unjudged_rate": 0.25, "filtered_reply_rate": 0.125},
    )
    trained = replace(whole.training, kl_warning="it moved too far", signal_warning="by chance")
    told = " ".join(limits(material(evaluation=examined, training=trained)))

    assert "Nobody has compared this judge" in limits(whole)[1]
    assert "Nobody has compared this judge" not in told
    by_people = limits(material(confirmed=(Interval(0.5, 0.25, 0.75), 4)))[1]
    assert "People labelled 4 of its findings and confirmed 50.0% [25.0%, 75.0%]" in by_people
    assert "of 30 labelled ones" in told
    assert "could not judge 25.0% of the replies" in told
    assert "filter of the target cut 12.5% of the replies" in told
    assert "filter of the target" not in " ".join(limits(whole))
    assert "9 dev prompts that chose the checkpoint, success was 50.0%: +50.0 points" in told
    assert "it moved too far" in told
    assert "by chance" in told


def test_the_limits_say_what_was_not_measured_and_what_measures_it():
    whole = material()
    asked = replace(
        whole.evaluation, transfer={"strict": Transfer(attacker=SPAN, baseline=SPAN, lift=SPAN)}
    )
    (before,), (after,) = (
        [line for line in limits(material(evaluation=own)) if line.startswith("Not measured: ")]
        for own in (whole.evaluation, asked)
    )

    assert before.replace("other targets (evaluation.transfer), ", "") == after
    assert after.endswith("hardened targets (astra harden).")


def test_the_limits_say_where_only_provocation_works():
    whole = material(rate=0.6)
    rude = {**whole.evaluation.attacker, "clean_attack_success_rate": Interval(0.0, 0.0, 0.1)}
    examined = replace(whole.evaluation, attacker=rude)

    assert not any("provocation" in line for line in limits(whole))
    found = [line for line in limits(material(evaluation=examined)) if "provocation" in line]
    assert found[0].startswith("Only provocation works here: the trained attacker")


def test_the_story_is_json():
    import json

    told = json.loads(json.dumps(story(material(decision="refused"))))

    assert "3" == told["version"]
    assert 0.6 == told["figures"]["final/attack_success_rate"]
    assert told["decision"][0].startswith("Not promoted")
    assert 1 == len(told["findings"])
