import pytest

from astra_core.errors import ConfigurationError
from flows.sweeps.samplers import WAVE, grid, optuna, random, sampler_called
from flows.sweeps.space import read_axes

AXES = read_axes(["a=log:1e-5..1e-1", "b=x,y"])


def test_a_grid_has_every_combination_once_and_not_those_found():
    axes = read_axes(["a=1,2,2", "b=x,y"])
    expected = [("a=1", "b=x"), ("a=1", "b=y"), ("a=2", "b=x"), ("a=2", "b=y")]

    assert expected == grid(axes, 0, {})
    assert expected[1:] == grid(axes, 0, {expected[0]: None})
    assert [()] == grid([], 0, {})


def test_a_grid_refuses_a_range():
    with pytest.raises(ConfigurationError, match="a must list values for a grid"):
        grid(AXES, 0, {})


def test_random_settings_are_the_same_ones_and_more_with_a_higher_count():
    few, more = random(AXES, 4, {}), random(AXES, 9, {})

    assert few == more[:4]
    assert 9 == len(set(more))
    assert more[1:] == random(AXES, 9, {more[0]: 0.5})
    rates = [float(first.partition("=")[2]) for first, _ in random(AXES, 100, {})]
    # Uniform in the logarithm: half of the draws lie below the middle of the exponents.
    assert 30 < sum(rate < 1e-3 for rate in rates) < 70
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)


def test_random_settings_end_where_there_are_no_more():
    assert {("b=x",), ("b=y",)} == set(random(read_axes(["b=x,y"]), 50, {}))


def test_optuna_goes_where_success_was_and_suggests_the_same_again():
    found = {}
    while settings := optuna(AXES, 24, found):
        assert settings == optuna(AXES, 24, found)
        assert len(settings) <= WAVE
        for setting in settings:
            rate, letter = (text.partition("=")[2] for text in setting)
            # The best is a = 1e-2 and b = x; one setting fails.
            value = -abs(float(rate) - 1e-2) - 0.1 * (letter == "y")
            found[setting] = None if len(found) == 3 else value

    assert 24 == len(found)
    late = list(found)[12:]
    assert sum(setting[1] == "b=x" for setting in late) > len(late) // 2


def test_an_unknown_sampler_is_one_line():
    with pytest.raises(ConfigurationError, match=r"must be one of .*, got 'bayes'"):
        sampler_called("bayes")
