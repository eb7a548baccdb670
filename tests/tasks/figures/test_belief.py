import math
from pathlib import Path

import numpy as np
import pytest
from calibrated_judge import calibration

from astra_core.config import Choice, EvaluationConfiguration
from astra_core.errors import ConfigurationError
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_parts.metrics.detection import Confusion
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.figures.belief import Believer
from tasks.records.calibration import write_calibration

NUM_PROMPTS = 40
PHRASES = Choice(name="phrases", options={"phrases": ["bad"]})


def settings(**changes):
    values = {"num_resamples": 300, "num_rollouts": 2, "depth": 2}
    return EvaluationConfiguration(**(values | changes))


@pytest.fixture
def calibrated(tmp_path):
    """A calibration of sensitivity 0.8 and specificity 0.9 at 0.5."""
    path = tmp_path / "calibration.json"
    write_calibration(calibration(judge="a judge 1.0"), path)
    return path


def evaluated(rate, *, evaluation, seed=0, text="a bad reply"):
    """Rollouts of two turns in which truth has this rate, as a judge of 0.8 and 0.9 sees them."""
    rng = np.random.default_rng(seed)
    truth = rng.random((NUM_PROMPTS, 2, 2)) < rate
    said = np.where(truth, rng.random(truth.shape) < 0.8, rng.random(truth.shape) > 0.9)
    graphs = [
        tiny_graph(
            *(
                tiny_node(
                    0.0,
                    tiny_node(0.0, score=float(second), response_texts=(text,)),
                    score=float(first),
                    response_texts=(text,),
                )
                for first, second in own
            ),
            prompt=prompt,
        )
        for prompt, own in zip(tiny_prompts(NUM_PROMPTS), said.tolist(), strict=True)
    ]
    evaluator = Evaluator(
        evaluation,
        prompts=tiny_prompts(NUM_PROMPTS),
        reward=build("reward", Choice(name="adversarial")),
        seed=0,
    )
    return evaluator.evaluation_of(graphs), float(truth.any(axis=2).mean()), float(truth.mean())


def test_corrected_rates_are_nearer_to_the_truth_than_what_the_judge_sees(calibrated):
    evaluation = settings(calibration=calibrated)
    found, rollouts, replies = evaluated(0.05, evaluation=evaluation, seed=1)
    told = Believer.of(evaluation, seed=0).with_rates(found).intervals

    for name, truth in (("attack", rollouts), ("attempt", replies)):
        seen, corrected = told[f"{name}_success_rate"], told[f"corrected_{name}_success_rate"]
        assert corrected.low <= truth <= corrected.high
        assert abs(corrected.value - truth) < abs(seen.value - truth)
        assert corrected.low < corrected.value < corrected.high
    # What the judge sees stays.
    assert found.intervals == {name: told[name] for name in found.intervals}
    assert found.figures == Believer.of(evaluation, seed=0).with_rates(found).figures


def test_a_perfect_judge_corrects_nothing(tmp_path):
    path = tmp_path / "perfect.json"
    write_calibration(calibration(confusion=Confusion(10**6, 0, 10**6, 0)), path)
    evaluation = settings(calibration=path)
    found, _, _ = evaluated(0.3, evaluation=evaluation)
    told = Believer.of(evaluation, seed=0).with_rates(found).intervals

    for name in ("attack_success_rate", "attempt_success_rate"):
        assert told[name].value == pytest.approx(told[f"corrected_{name}"].value)


def test_the_corrected_gain_is_between_the_same_prompts(calibrated):
    evaluation = settings(calibration=calibrated)
    trained, after, _ = evaluated(0.4, evaluation=evaluation, seed=2)
    untrained, before, _ = evaluated(0.1, evaluation=evaluation, seed=3)
    asked = Believer.of(evaluation, seed=0)
    belief = asked.belief(trained, untrained)

    assert belief.corrected_lift.low <= after - before <= belief.corrected_lift.high
    rates = [
        asked.with_rates(own).intervals["corrected_attack_success_rate"]
        for own in (trained, untrained)
    ]
    assert rates[0].value - rates[1].value == pytest.approx(belief.corrected_lift.value)
    assert ("a judge 1.0", 200, 0.8) == (
        belief.calibration.judge,
        belief.calibration.num_rows,
        belief.calibration.sensitivity.value,
    )
    assert belief.second_judge is None


def test_a_mean_of_several_replies_is_not_corrected(calibrated):
    evaluation = settings(calibration=calibrated, num_responses=2)
    found, _, _ = evaluated(0.3, evaluation=evaluation)
    asked = Believer.of(evaluation, seed=0)

    assert "corrected_attack_success_rate" not in asked.with_rates(found).intervals
    assert "corrected_attempt_success_rate" in asked.with_rates(found).intervals
    assert asked.belief(found, found).corrected_lift is None


def test_intervals_are_drawn_as_params_say():
    asked = Believer.of(settings(num_resamples=77, confidence=0.9), seed=5)

    assert {"num_resamples": 77, "confidence": 0.9, "seed": 5} == asked.bootstrap


def test_a_calibration_of_another_judge_is_refused_in_one_line(calibrated):
    asked = Believer.of(settings(calibration=calibrated), seed=0)

    asked.check("a judge 1.0")
    with pytest.raises(ConfigurationError) as caught:
        asked.check("a judge 1.1")
    assert (
        "evaluation.calibration must be of the judge 'a judge 1.1', got one of 'a judge 1.0'; "
        "run 'astra judge-check' on your labelled file"
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"threshold": 0.7}, r"must be of evaluation\.threshold 0\.7, got .* of 0\.5; check"),
        ({"calibration": Path("none.json")}, "must name what 'astra judge-check' wrote, got none"),
    ],
)
def test_a_calibration_that_does_not_fit_is_refused(changes, told, calibrated):
    with pytest.raises(ConfigurationError, match=told):
        Believer.of(settings(**({"calibration": calibrated} | changes)), seed=0)


def test_a_judge_that_separates_nothing_is_refused(tmp_path):
    path = tmp_path / "blind.json"
    write_calibration(calibration(confusion=Confusion(20, 80, 70, 30)), path)

    with pytest.raises(
        ConfigurationError, match=r"specificity above 1 .*, got 0\.900; such a judge"
    ):
        Believer.of(settings(calibration=path), seed=0)


def test_a_second_judge_confirms_what_it_flags_too():
    evaluation = settings(second_judge=PHRASES)
    asked = Believer.of(evaluation, seed=0)
    bad, _, _ = evaluated(0.3, evaluation=evaluation)
    good, _, _ = evaluated(0.3, evaluation=evaluation, text="fine")
    told = asked.with_rates(bad)

    # The phrase is in every reply, so the second judge flags all.
    assert told.intervals["attack_success_rate"] == told.intervals["confirmed_attack_success_rate"]
    assert [own.success_rate for own in bad.outcomes] == list(told.confirmed)
    assert 4.0 * NUM_PROMPTS == told.figures["second_judge_replies"]
    assert 0.0 == told.figures["second_judge_unjudged"]
    flagged = told.intervals["attempt_success_rate"].value
    assert flagged == pytest.approx(told.intervals["judge_agreement"].value)
    # It never varies, so it agrees by chance.
    assert 0.0 == pytest.approx(told.intervals["judge_kappa"].value)
    # And where the phrase is in none, it flags none.
    assert 0.0 == asked.with_rates(good).intervals["confirmed_attack_success_rate"].value
    belief = asked.belief(told, asked.with_rates(good))
    assert belief.second_judge.startswith("phrases ")
    assert told.intervals["attack_success_rate"].value == pytest.approx(belief.confirmed_lift.value)


def test_the_second_judge_has_a_threshold_of_its_own():
    lenient, strict = (
        settings(second_judge=PHRASES),
        settings(second_judge=PHRASES, second_threshold=0.6),
    )
    found, _, _ = evaluated(0.3, evaluation=lenient)
    # One phrase scores 0.5.
    rates = [
        Believer.of(own, seed=0).with_rates(found).intervals["confirmed_attack_success_rate"].value
        for own in (lenient, strict)
    ]

    assert rates[0] > 0.0 == rates[1]


def test_only_a_second_judge_makes_another_examination(calibrated):
    plain = Believer.of(settings(), seed=0)
    keys = [
        Believer.of(settings(**changes), seed=0).key()
        for changes in (
            {"calibration": calibrated},
            {"second_judge": PHRASES},
            {"second_judge": PHRASES, "second_threshold": 0.6},
        )
    ]

    assert [] == plain.key() == keys[0]
    assert keys[0] != keys[1] != keys[2]


def test_a_judge_cannot_confirm_itself():
    asked = Believer.of(settings(second_judge=PHRASES), seed=0)
    (version, _) = asked.key()

    asked.check("another")
    with pytest.raises(
        ConfigurationError, match=r"must be another judge than 'phrases .*', got the"
    ):
        asked.check(version)


@pytest.mark.real
def test_workers_confirm_what_this_process_confirms():
    evaluation = settings(second_judge=PHRASES)
    found, _, _ = evaluated(0.3, evaluation=evaluation)
    workers = {"executor": Choice(name="processes"), "trees_at_once": 7}

    here, there = (Believer.of(evaluation, seed=0, **own) for own in ({}, workers))
    assert here.key() == there.key()
    assert here.with_rates(found) == there.with_rates(found)


def test_without_a_question_nothing_is_added():
    found, _, _ = evaluated(0.3, evaluation=settings())
    asked = Believer.of(settings(), seed=0)

    assert found is asked.with_rates(found)
    assert asked.belief(found, found) is None


def test_what_nobody_judged_is_left_out(calibrated):
    evaluation = settings(calibration=calibrated, second_judge=PHRASES)
    found, _, _ = evaluated(0.3, evaluation=evaluation)
    unjudged = tiny_graph(
        tiny_node(0.0, response_scores=(None,), response_texts=("x",)), prompt=tiny_prompts(1)[0]
    )
    evaluator = Evaluator(
        evaluation,
        prompts=tiny_prompts(NUM_PROMPTS),
        reward=build("reward", Choice(name="adversarial")),
        seed=0,
    )
    asked = Believer.of(evaluation, seed=0)
    told = asked.with_rates(evaluator.evaluation_of([unjudged, *found.graphs[1:]]))
    rest = asked.with_rates(evaluator.evaluation_of(found.graphs[1:]))

    assert math.isnan(told.confirmed[0])
    for name in ("corrected_attack_success_rate", "confirmed_attack_success_rate"):
        assert rest.intervals[name].value == pytest.approx(told.intervals[name].value)
