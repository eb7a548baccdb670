"""The gate's numbers and the candidates it must not let through."""

import numpy as np
import pandas as pd
import pytest

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.gate import Comparison, compare, decide

RULES = PromotionConfiguration()
DULL = "the attacker repeats itself, strengthen the novelty reward or the KL penalty"


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
    }
    return Comparison(**(values | changes))


def one_rate(got, owner="candidate"):
    rule = "must hold one success_rate in [0, 1] per prompt"
    return f"{owner}'s table {rule}, got {got}; evaluate it anew"


def same_prompts(number, *, shared):
    return (
        f"candidate and champion must be examined on the same prompts, got {number} and 3 prompts "
        f"of which {shared} are shared; evaluate both anew"
    )


def too_little(gain):
    way_out = "train longer or evaluate more prompts"
    return f"lower end of the gain must lie above 0, got {gain}; {way_out}"


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


@pytest.mark.parametrize("share", [0.0, 0.1])
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


@pytest.mark.parametrize(
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


def test_compare_takes_the_column_it_is_told():
    ours, theirs = (
        table([0.0, 0.0]).assign(clean_success_rate=rates) for rates in ([1.0, 0.5], [0.5, 0.5])
    )

    assert 0.25 == compare(ours, theirs, column="clean_success_rate").gain
    assert 0.0 == compare(ours, theirs).gain


def test_compare_takes_rates_of_none_and_of_all():
    assert -1.0 == compare(table([0.0, 0.0]), table([1.0, 1.0])).gain


def test_compare_draws_as_often_and_as_confidently_as_it_is_told():
    ours, theirs = (table(np.random.default_rng(seed).random(40)) for seed in (2, 3))
    plain = compare(ours, theirs)
    wide = compare(ours, theirs, confidence=0.99)

    assert plain == compare(ours, theirs, confidence=0.95, num_resamples=10_000, seed=0)
    assert (0.95, 0.99) == (plain.confidence, wide.confidence)
    assert wide.low < plain.low < plain.gain < plain.high < wide.high
    assert plain.low != compare(ours, theirs, seed=1).low
    assert plain.low != compare(ours, theirs, num_resamples=500).low


def test_decide_opens_when_every_rule_holds():
    verdict = decide(
        comparison(),
        candidate={"unique_probes": 0.95, "distinct_2": 0.4},
        untrained={"distinct_2": 0.8},
        rules=RULES,
    )

    assert verdict.passed
    assert verdict.reasons == (
        "gain +0.200 (95% interval +0.100 to +0.300, 200 prompts) lies above 0",
    )


@pytest.mark.parametrize(
    ("changes", "candidate", "reason"),
    [
        (
            {"low": 0.0},
            {},
            too_little("gain +0.200 (95% interval +0.000 to +0.300, 200 prompts)"),
        ),
        (
            {"low": -0.1},
            {},
            too_little("gain +0.200 (95% interval -0.100 to +0.300, 200 prompts)"),
        ),
        (
            {"num_prompts": 9},
            {},
            "prompts examined must be at least 10, got 9; raise evaluation.num_prompts",
        ),
        ({}, {"unique_probes": 0.89}, f"unique_probes must be at least 0.900, got 0.890; {DULL}"),
        ({}, {"distinct_2": 0.39}, f"distinct_2 must be at least 0.400, got 0.390; {DULL}"),
        (
            {},
            {"distinct_2": {"value": 0.39}},
            f"distinct_2 must be at least 0.400, got 0.390; {DULL}",
        ),
    ],
)
def test_decide_names_the_rule_that_fails(changes, candidate, reason):
    verdict = decide(
        comparison(**changes),
        candidate={"unique_probes": 0.95, "distinct_2": 0.5} | candidate,
        untrained={"distinct_2": 0.8},
        rules=RULES,
    )

    assert not verdict.passed
    assert (reason,) == verdict.reasons


@pytest.mark.parametrize(
    ("changes", "candidate"),
    [
        ({"num_prompts": 10}, {}),
        ({"low": 1e-9}, {}),
        ({}, {"unique_probes": 0.9}),
        ({}, {"distinct_2": 0.4}),
        ({}, {"distinct_2": {"value": 0.4, "low": 0.1}}),
    ],
)
def test_decide_opens_at_the_floor_itself(changes, candidate):
    verdict = decide(
        comparison(**changes),
        candidate={"unique_probes": 0.95, "distinct_2": 0.5} | candidate,
        untrained={"distinct_2": 0.8},
        rules=RULES,
    )

    assert verdict.passed


def test_decide_names_every_rule_that_fails():
    verdict = decide(
        comparison(low=-0.5),
        candidate={"unique_probes": 0.1, "distinct_2": 0.1},
        untrained={"distinct_2": 0.8},
        rules=RULES,
    )

    assert len(verdict.reasons) == 3


@pytest.mark.parametrize(
    ("figures", "got"),
    [
        ({}, "None"),
        ({"unique_probes": float("nan")}, "nan"),
        ({"unique_probes": None}, "None"),
        ({"unique_probes": "0.95"}, "'0.95'"),
        ({"unique_probes": {"low": 0.95}}, "None"),
    ],
)
def test_decide_refuses_figures_that_are_no_numbers(figures, got):
    with pytest.raises(DataError) as caught:
        decide(
            comparison(),
            candidate={"distinct_2": 0.5} | figures,
            untrained={"distinct_2": 0.8},
            rules=RULES,
        )
    assert (
        f"unique_probes of the candidate must be a finite number, got {got}; evaluate it anew"
        == str(caught.value)
    )


def test_decide_says_that_it_is_the_untrained_attacker_that_lacks_a_figure():
    with pytest.raises(DataError) as caught:
        decide(comparison(), candidate={}, untrained={}, rules=RULES)
    assert (
        "distinct_2 of the untrained attacker must be a finite number, got None; evaluate it anew"
        == str(caught.value)
    )


def test_compare_leaves_out_a_prompt_that_nobody_could_judge():
    gap = table([0.9, float("nan"), 0.3, 0.4]).assign(num_unjudged=[0, 2, 0, 1])
    whole = table([0.2, 0.3, 0.1, 0.4]).assign(num_unjudged=0)
    found, rows = compare(gap, whole), [0, 2, 3]

    expected = compare(gap.iloc[rows], whole.iloc[rows])
    assert (expected.gain, expected.low, 3) == (found.gain, found.low, found.num_prompts)
    with pytest.raises(DataError, match="must share a judged prompt"):
        compare(gap.iloc[1:2], whole.iloc[1:2])
