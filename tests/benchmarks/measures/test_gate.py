"""The gate over simulated duels and months: its stated error, and its power."""

import numpy as np
import pytest

from benchmarks.measures.gate import Attacker, main, month, promoted_share
from tasks.params.schema import PromotionConfiguration

RULES = PromotionConfiguration()
EQUAL = Attacker(0.5)


def test_a_month_is_repeatable_and_follows_its_seed():
    rules = PromotionConfiguration(horizon=3, num_prompts=40)

    assert month(rules, seed=1, spread=0.3) == month(rules, seed=1, spread=0.3)
    assert month(rules, seed=1, spread=0.3) != month(rules, seed=2, spread=0.3)


@pytest.mark.real
def test_a_larger_error_promotes_more(capsys):
    shares = [
        promoted_share(
            Attacker(0.6),
            EQUAL,
            PromotionConfiguration(family_error=error, num_prompts=100),
            num_duels=40,
        )
        for error in (0.001, 0.4)
    ]

    assert shares[0] < shares[1]
    assert 0 == main(["--duels", "2", "--months", "1"])
    assert "| equal | 0.00% |" in capsys.readouterr().out


@pytest.mark.wide
def test_null_duels_are_promoted_at_most_as_often_as_stated():
    # A duel of a horizon of one: all of the error is its own, so 600 duels suffice to see it.
    for error, most in ((0.05, 46), (0.025, 27)):
        rules = PromotionConfiguration(family_error=error, horizon=1)
        share = promoted_share(EQUAL, EQUAL, rules, num_duels=600, seed=3)
        # binomial(600, error): more than `most` happens less than once in a hundred times.
        assert 600 * share <= most
    assert promoted_share(EQUAL, EQUAL, RULES, num_duels=600) <= 8 / 600


@pytest.mark.wide
def test_a_duel_sees_five_and_ten_points():
    share = {
        gain: promoted_share(Attacker(0.5 + gain), EQUAL, RULES, num_duels=300)
        for gain in (0.05, 0.1, 0.15)
    }

    assert share[0.05] > 0.04
    assert share[0.1] > 0.7
    assert share[0.15] > 0.99
    larger = PromotionConfiguration(num_prompts=1200)
    assert promoted_share(Attacker(0.55), EQUAL, larger, num_duels=100) > 0.45


@pytest.mark.wide
def test_a_far_more_diverse_attacker_wins_only_if_it_is_as_good():
    even = promoted_share(Attacker(0.5, evenness=1.0), EQUAL, RULES, num_duels=200)
    worse = promoted_share(Attacker(0.4, evenness=1.0), EQUAL, RULES, num_duels=200)

    assert even > 0.4
    assert worse <= 0.025


@pytest.mark.wide
def test_thirty_nights_keep_the_family_wise_error_and_the_record():
    months = [month(RULES, seed=seed) for seed in range(100)]
    excess = np.array([found.excess for found in months])

    # binomial(100, 0.05): more than 11 happens less than once in a hundred times.
    assert sum(found.num_promoted > 0 for found in months) <= 11
    assert abs(excess.mean()) < 3.0 * excess.std() / np.sqrt(len(excess))


@pytest.mark.wide
def test_thirty_nights_with_better_candidates_promote_some_and_do_not_ratchet():
    months = [month(RULES, seed=seed, spread=0.1) for seed in range(40)]
    excess = np.array([found.excess for found in months])

    assert all(found.num_promoted > 0 for found in months)
    assert abs(excess.mean()) < 3.0 * excess.std() / np.sqrt(len(excess))
