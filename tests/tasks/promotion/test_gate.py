"""The gate's numbers and the candidates it must not let through."""

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from each_row import each_row
from pydantic import TypeAdapter

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.bands import GateRule
from tasks.promotion.gate import Comparison, Stake, compare, decide
from tasks.promotion.paired import Paired
from tasks.promotion.richness import Richness

RULES = PromotionConfiguration()
STAKE = Stake(0.025, place=3, horizon=30, against_champion=False)


def table(rates):
    return pd.DataFrame(
        {"prompt_id": [f"p{i:03d}" for i in range(len(rates))], "success_rate": list(rates)}
    )


def comparison(**changes):
    values = {
        "gain": 0.2,
        "low": 0.1,
        "high": 0.3,
        "candidate": 0.5,
        "champion": 0.3,
        "num_prompts": 200,
        "confidence": 0.95,
        "test": Paired(0.2, 0.1, 200),
    }
    return Comparison(**(values | changes))


def one_rate(got, owner="candidate"):
    rule = "must hold one success_rate in [0, 1] per prompt"
    return f"{owner}'s table {rule}, got {got}; evaluate it again"


def same_prompts(number, *, shared):
    return (
        f"candidate and champion must be examined on the same prompts, got {number} and 3 prompts "
        f"of which {shared} are shared; evaluate both again"
    )


def columns_of(owner, got):
    rule = "must have columns prompt_id and success_rate"
    return f"{owner}'s table {rule}, got {got}; run the stage evaluation"


def test_compare_is_the_mean_of_the_paired_differences():
    result = compare(table([1.0, 0.5, 0.0, 1.0]), table([0.0, 0.5, 0.5, 0.5]))

    # differences 1, 0, -1/2, 1/2
    assert pytest.approx(0.25) == result.gain
    assert pytest.approx(0.625) == result.candidate
    assert pytest.approx(0.375) == result.champion
    assert result.num_prompts == 4


def test_compare_pairs_by_prompt_and_not_by_row():
    rates = np.random.default_rng(0).integers(0, 3, size=60) / 2
    ours, theirs = table(rates), table(np.roll(rates, 1))

    shuffled = theirs.sample(frac=1, random_state=3)

    assert compare(ours, theirs) == compare(ours, shuffled)


def test_compare_of_an_attacker_with_itself_is_exactly_zero():
    rates = table(np.random.default_rng(1).random(50))

    result = compare(rates, rates)

    assert (result.gain, result.low, result.high) == (0.0, 0.0, 0.0)


def test_compare_has_the_width_of_the_paired_standard_error():
    # 200 differences of +1 or 0 with mean 1/2: the standard error is sqrt(1/4 / 200) = 0.0354.
    ours, theirs = table([1.0, 0.0] * 100), table([0.0] * 200)

    result = compare(ours, theirs, confidence=0.95)

    assert pytest.approx(1.96 * 0.0354, abs=0.01) == (result.high - result.low) / 2
    assert result.low > 0.4


def test_compare_gains_from_pairing():
    """Prompts differ far more than attackers do; unpaired, this gain would drown in them."""
    difficulty = np.repeat([0.0, 0.9], 50)

    result = compare(table(difficulty + 0.1), table(difficulty))

    assert pytest.approx(0.1) == result.low
    assert pytest.approx(0.1) == result.high


def test_compare_repeats_itself():
    ours = table(np.random.default_rng(2).random(40))
    theirs = table(np.random.default_rng(3).random(40))

    assert compare(ours, theirs, seed=5) == compare(ours, theirs, seed=5)


@pytest.mark.real
@each_row("share", [0.0, 0.1])
def test_compare_promotes_noise_at_most_as_often_as_it_claims(share):
    """With no true gain the lower end of a 95 % interval lies above zero 2.5 % of the time."""
    generator = np.random.default_rng(11)
    num_above = 0
    for seed in range(200):
        base = generator.random(100) * 0.5 + share
        draws = generator.binomial(2, base, size=(2, 100)) / 2
        num_above += compare(table(draws[0]), table(draws[1]), num_resamples=400, seed=seed).low > 0

    # binomial(200, 0.025): more than 13 happens once in a thousand
    assert num_above <= 13


@each_row(
    ("candidate", "message"),
    [
        (table([]), one_rate("no rows")),
        (table([0.1, float("nan"), 0.3]), one_rate("1 values that are not")),
        (table([0.1, 1.2, -0.3]), one_rate("2 values that are not")),
        (table([0.1, 0.2, 0.3]).assign(prompt_id="p000"), one_rate("2 repeated prompts")),
        (table([0.1, 0.2]), same_prompts(2, shared=2)),
        (table([0.1, 0.2, 0.3, 0.4]), same_prompts(4, shared=3)),
        (
            table([0.1, 0.2, 0.3]).drop(columns="success_rate"),
            columns_of("candidate", "['prompt_id']"),
        ),
        (
            table([0.1, 0.2, 0.3]).drop(columns="prompt_id"),
            columns_of("candidate", "['success_rate']"),
        ),
    ],
)
def test_compare_refuses_what_cannot_be_compared(candidate, message):
    with pytest.raises(DataError) as caught:
        compare(candidate, table([0.1, 0.2, 0.3]))
    assert message == str(caught.value)


def test_compare_says_that_it_is_the_champion_that_is_wrong():
    with pytest.raises(DataError) as caught:
        compare(table([0.1]), table([0.1]).drop(columns="success_rate"))
    assert columns_of("champion", "['prompt_id']") == str(caught.value)
    with pytest.raises(DataError) as caught:
        compare(table([0.1]), table([2.0]))
    assert one_rate("1 values that are not", "champion") == str(caught.value)


def test_compare_takes_the_column_it_is_given():
    ours, theirs = (
        table([0.0, 0.0]).assign(clean_success_rate=rates) for rates in ([1.0, 0.5], [0.5, 0.5])
    )

    assert 0.25 == compare(ours, theirs, column="clean_success_rate").gain
    assert 0.0 == compare(ours, theirs).gain


def test_compare_takes_rates_of_none_and_of_all():
    assert -1.0 == compare(table([0.0, 0.0]), table([1.0, 1.0])).gain


def test_compare_draws_as_often_and_as_confidently_as_asked():
    ours, theirs = (table(np.random.default_rng(seed).random(40)) for seed in (2, 3))
    plain = compare(ours, theirs)
    wide = compare(ours, theirs, confidence=0.99)

    assert plain == compare(ours, theirs, confidence=0.95, num_resamples=10_000, seed=0)
    assert (0.95, 0.99) == (plain.confidence, wide.confidence)
    assert wide.low < plain.low < plain.gain < plain.high < wide.high
    assert plain.low != compare(ours, theirs, seed=1).low
    assert plain.low != compare(ours, theirs, num_resamples=500).low


def test_decide_opens_when_the_gain_is_beyond_chance():
    verdict = decide(comparison(), rules=RULES, stake=STAKE)

    assert verdict.passed
    # t = 2: Student's probability above it with 200 degrees of freedom.
    told = "gain +20.0 points (95% interval +10.0 to +30.0, 200 prompts), p 0.023 of at most 0.025"
    assert (f"{told} in duel 3 of 30: above 0 points",) == verdict.reasons


@each_row(
    ("changes", "reason"),
    [
        ({"test": Paired(0.1, 0.1, 200)}, "gain must lie above 0 points beyond chance, got gain"),
        ({"num_prompts": 9}, "prompts examined must be at least 10, got 9; raise evaluation"),
    ],
)
def test_decide_names_the_rule_that_fails(changes, reason):
    verdict = decide(comparison(**changes), rules=RULES, stake=STAKE)

    assert not verdict.passed
    assert 1 == len(verdict.reasons)
    assert verdict.reasons[0].startswith(reason)


def test_decide_asks_the_gain_to_exceed_min_lift():
    rules = PromotionConfiguration(min_lift=0.05)

    assert not decide(comparison(), rules=rules, stake=STAKE).passed
    assert decide(comparison(), rules=PromotionConfiguration(), stake=STAKE).passed


def test_decide_spends_half_of_the_error_where_two_ways_are_open():
    halved = replace(STAKE, against_champion=True)

    assert not decide(comparison(), rules=RULES, stake=halved).passed
    assert decide(comparison(), rules=RULES, stake=replace(halved, level=0.05)).passed


EQUAL = {"gain": 0.0, "test": Paired(0.0, 0.02, 200)}
RICHER = Richness([9.0, 10.0, 11.0] * 5, [5.0, 5.0, 6.0] * 5, 20)
SIMILAR = Richness([6.0, 5.0, 6.0] * 5, [5.0, 5.0, 6.0] * 5, 20)


@each_row(
    ("changes", "against_champion", "passes"),
    [
        ({"richness": RICHER}, True, True),
        ({"richness": RICHER}, False, False),
        ({"richness": SIMILAR}, True, False),
        ({"richness": None}, True, False),
        # No worse by 5 points is not shown.
        ({"richness": RICHER, "test": Paired(-0.03, 0.02, 200)}, True, False),
    ],
)
def test_as_good_and_far_more_diverse_wins_against_a_champion(changes, against_champion, passes):
    stake = replace(STAKE, against_champion=against_champion)

    verdict = decide(comparison(**EQUAL | changes), rules=RULES, stake=stake)

    assert passes is verdict.passed
    if passes:
        assert "strategies 10.0 against 5.3 in 20 hits" in verdict.reasons[0]


@each_row("change", [{"max_loss": 0.03}, {"min_diversity_gain": 1.0}])
def test_how_good_and_how_diverse_is_what_params_say(change):
    stake = replace(STAKE, against_champion=True)
    rules = PromotionConfiguration(**change)

    assert not decide(comparison(**EQUAL, richness=RICHER), rules=rules, stake=stake).passed


def test_compare_finds_the_strategies_of_both_tables():
    even = [[number % 10, (number + 3) % 10] for number in range(60)]
    ours = table([0.5] * 60).assign(hit_strategies=even)
    theirs = table([0.5] * 60).assign(hit_strategies=[[0, 0]] * 60)

    found = compare(ours, theirs)

    assert found.richness.num_hits == 6
    assert np.mean(found.richness.candidate) > 4.5
    assert {1.0} == {round(value, 9) for value in found.richness.champion}
    assert compare(ours, table([0.5] * 60)).richness is None
    # By questions to the target against shared words.
    assert compare(ours.assign(strategies_asked=True), theirs).richness is None
    assert found == TypeAdapter(Comparison).validate_json(json.dumps(asdict(found)))


def test_compare_leaves_out_a_prompt_that_nobody_could_judge():
    gap = table([0.9, float("nan"), 0.3, 0.4]).assign(num_unjudged=[0, 2, 0, 1])
    whole = table([0.2, 0.3, 0.1, 0.4]).assign(num_unjudged=0)
    found, rows = compare(gap, whole), [0, 2, 3]

    expected = compare(gap.iloc[rows], whole.iloc[rows])
    assert (expected.gain, expected.low, 3) == (found.gain, found.low, found.num_prompts)
    with pytest.raises(DataError, match="must share a judged prompt"):
        compare(gap.iloc[1:2], whole.iloc[1:2])


def test_a_comparison_without_strategies_is_read_as_it_was():
    found = comparison()

    assert found == TypeAdapter(Comparison).validate_json(json.dumps(asdict(found)))


def test_strategies_are_compared_prompt_by_prompt():
    even = [[number % 10, (number + 3) % 10] for number in range(60)]
    ours = table([0.5] * 60).assign(hit_strategies=even)
    theirs = table([0.5] * 60).assign(hit_strategies=[[number % 7, 9] for number in range(60)])
    shuffled = [
        frame.sample(frac=1.0, random_state=seed) for seed, frame in ((1, ours), (2, theirs))
    ]

    assert compare(ours, theirs).richness == compare(*shuffled).richness


def test_as_many_prompts_as_the_rules_ask_are_enough():
    least = RULES.min_prompts

    assert decide(comparison(num_prompts=least), rules=RULES, stake=STAKE).passed
    few = decide(comparison(num_prompts=least - 1), rules=RULES, stake=STAKE)
    assert not few.passed
    assert ["prompts examined"] == [rule.name for rule in few.rules if not rule.held]


def test_each_rule_is_told_with_both_figures_and_its_bound():
    champion = replace(STAKE, against_champion=True)
    more = "more than 0 points above, p at most"
    success = GateRule(
        "attack success, duel 3 of 30", "50.0%, p 0.5", "30.0% (champion)", f"{more} 0.013", False
    )
    richer = "strategies 10.0 against 5.3 in 20 hits"
    bound = "25% more, success at most 5 points below"
    few = decide(comparison(num_prompts=9), rules=RULES, stake=STAKE)

    for changes, found, held in (({"richness": RICHER}, richer, True), ({}, "too few hits", False)):
        told = decide(comparison(**EQUAL | changes), rules=RULES, stake=champion)
        assert (success, GateRule("or else strategies", found, "", bound, held)) == told.rules
    assert (
        GateRule(success.name, "50.0%, p 0.023", "30.0%", f"{more} 0.025", True),
        GateRule("prompts examined", "9", "", "at least 10", False),
    ) == few.rules


def test_a_p_value_of_just_the_error_that_may_be_spent_passes():
    found = comparison(test=Paired(0.02, 0.1, 200))
    level = found.test.p_value(RULES.min_lift)

    passed = decide(found, rules=RULES, stake=replace(STAKE, level=level))
    assert passed.passed
    assert passed.rules[0].held
    assert not decide(found, rules=RULES, stake=replace(STAKE, level=level * 0.999)).passed


def test_what_to_do_is_said_word_for_word():
    found = decide(comparison(test=Paired(0.0, 0.1, 200)), rules=RULES, stake=STAKE)

    assert found.reasons[0].endswith("; train longer or examine more prompts")
    whole = table([0.2]).assign(num_unjudged=0)
    gap = table([float("nan")]).assign(num_unjudged=[1])
    expected = "candidate and champion must share a judged prompt, got none; see system.scorer"
    with pytest.raises(DataError) as caught:
        compare(gap, whole)
    assert expected == str(caught.value)
