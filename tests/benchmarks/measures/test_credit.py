"""Credit over two turns, in a world of tables."""

from statistics import fmean

import pytest
import torch
from each_row import each_row

from benchmarks.measures.credit import METHODS, Method, TwoTurns, learned, main


def successes(*method, seeds=4):
    found = [learned(Method(*method), seed=seed).chances() for seed in range(seeds)]
    return [first * second for first, second in found]


def test_one_rollout_in_nine_succeeds_untrained():
    assert [1 / 3, 1 / 3] == pytest.approx(TwoTurns(0).chances())
    grown = TwoTurns(0).experience(200)
    second = grown.parents >= 0

    assert 0.13 == pytest.approx(float(grown.rewards[second].mean()), abs=0.1)
    assert grown.rewards[second].mean() > grown.rewards[~second].mean() + 0.05
    assert 4 * int((~second).sum()) == int(second.sum()) == 16 * 200


@pytest.mark.wide
@each_row("method", METHODS)
def test_a_seed_gives_the_same_attacker(method):
    one, two, other = (learned(method, seed=seed, experiences=1) for seed in (1, 1, 2))

    assert torch.equal(one.own, two.own)
    assert not torch.equal(one.own, other.own)


@pytest.mark.wide
def test_the_command_prints_a_row_for_each_method(capsys):
    assert 0 == main(["--seeds", "1", "--experiences", "1"])
    printed = capsys.readouterr().out

    assert all(
        f"| {each.algorithm} | {each.backup} | {each.turn_weights} |" in printed for each in METHODS
    )


@pytest.mark.wide
def test_without_credit_for_what_follows_the_first_turn_is_not_learned():
    assert fmean(successes("dpo", "none", "equal")) < 0.3


@pytest.mark.wide
@pytest.mark.parametrize("algorithm", ["dpo", pytest.param("grpo", marks=pytest.mark.wide)])
def test_turns_weighed_by_visits_help_the_first_turn(algorithm):
    equal = successes(algorithm, "mean", "equal")
    visits = successes(algorithm, "mean", "visits")

    assert fmean(visits) > fmean(equal)
