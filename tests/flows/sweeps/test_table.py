import pytest
from sweep_results import result

from astra_core.metrics.statistics import Interval
from flows.sweeps.table import best_of, over_seeds, setting_results, table

A, B = ("lr=1",), ("lr=2",)


def test_the_interval_over_seeds_is_students():
    found = over_seeds([Interval(value, 0.0, 1.0) for value in (0.2, 0.3, 0.4)], 0.95)

    # t of two degrees of freedom at 97.5 % is 4.302653, and s / sqrt(3) is 0.1 / 1.7320508.
    assert 0.3 == pytest.approx(found.value)
    assert 0.3 - 4.302653 * 0.1 / 3**0.5 == pytest.approx(found.low)
    assert over_seeds([Interval(value, 0.0, 1.0) for value in (0.2, 0.3, 0.4)], 0.5).low > found.low


def test_one_seed_keeps_its_own_interval():
    assert Interval(0.5, 0.4, 0.6) == over_seeds([Interval(0.5, 0.4, 0.6)], 0.95)


def test_the_best_is_chosen_on_dev_prompts_and_not_on_those_of_the_table():
    points = {
        A: [result(A, 0, success=0.9, dev=0.4), result(A, 1, success=0.9, dev=0.4)],
        B: [result(B, 0, success=0.5, dev=0.6), result(B, 1, success=0.5, dev=0.7)],
    }
    rows = setting_results([A, B], points, confidence=0.95)

    assert B == best_of(rows).setting
    assert 1 == best_of(rows).best_point().seed


def test_without_figures_on_dev_the_best_is_that_on_test():
    points = {A: [result(A, 0, success=0.9, dev=None)], B: [result(B, 0, success=0.5, dev=0.9)]}

    assert A == best_of(setting_results([A, B], points, confidence=0.95)).setting


def test_a_setting_with_a_failed_seed_is_not_best_while_another_is_whole():
    points = {A: [result(A, 0, dev=0.9), None], B: [result(B, 0, dev=0.1), result(B, 1, dev=0.1)]}
    rows = setting_results([A, B], points, confidence=0.95)
    page = table(rows, failed={"lr=1 seed=1": "training: no"})

    assert B == best_of(rows).setting
    assert "| lr=1 | 1 of 2 |" in page
    assert "| lr=2 (best) | 2 |" in page
    assert "lr=1 seed=1 failed: training: no" in page


def test_a_setting_without_a_point_has_no_row():
    assert [] == setting_results([A], {A: [None]}, confidence=0.95)
    assert best_of([]) is None
