"""The gate's numbers and the candidates it must not let through."""

import numpy as np
import pandas as pd
import pytest

from astra_core.errors import DataError
from tasks.gate import Comparison, compare, decide
from tasks.params import PromotionConfiguration

RULES = PromotionConfiguration()


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
        (table([]), "got no rows"),
        (table([0.1, float("nan"), 0.3]), "got 1 values that are not"),
        (table([0.1, 1.2, 0.3]), "got 1 values that are not"),
        (table([0.1, 0.2]), "of which 2 are shared"),
        (table([0.1, 0.2, 0.3, 0.4]), "of which 3 are shared"),
        (table([0.1, 0.2, 0.3]).assign(prompt_id="p000"), "2 repeated prompts"),
        (table([0.1, 0.2, 0.3]).drop(columns="success_rate"), "must have columns"),
    ],
)
def test_compare_refuses_what_cannot_be_compared(candidate, message):
    with pytest.raises(DataError, match=message):
        compare(candidate, table([0.1, 0.2, 0.3]))


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
        ({"low": 0.0}, {}, "lower end of the gain must lie above 0, got gain"),
        ({"low": -0.1}, {}, "lower end of the gain must lie above 0, got gain"),
        ({"num_prompts": 9}, {}, "prompts examined must be at least 10, got 9"),
        ({}, {"unique_probes": 0.89}, "unique_probes must be at least 0.900, got 0.890"),
        ({}, {"distinct_2": 0.39}, "distinct_2 must be at least 0.400, got 0.390"),
        ({}, {"distinct_2": {"value": 0.39}}, "distinct_2 must be at least 0.400, got 0.390"),
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
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith(reason)


def test_decide_names_every_rule_that_fails():
    verdict = decide(
        comparison(low=-0.5),
        candidate={"unique_probes": 0.1, "distinct_2": 0.1},
        untrained={"distinct_2": 0.8},
        rules=RULES,
    )

    assert len(verdict.reasons) == 3


@pytest.mark.parametrize("figures", [{}, {"unique_probes": float("nan")}, {"unique_probes": None}])
def test_decide_refuses_figures_that_are_no_numbers(figures):
    with pytest.raises(DataError, match="unique_probes of the candidate must be a finite number"):
        decide(
            comparison(),
            candidate={"distinct_2": 0.5} | figures,
            untrained={"distinct_2": 0.8},
            rules=RULES,
        )
