import numpy as np
import pytest
from each_row import each_row

from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.reports import write_record
from tasks.reporting.selection import optimism, was_selected

OPTIONS = {"num_resamples": 400, "confidence": 0.95, "seed": 0}


@each_row(
    ("kept", "value", "expected"),
    [("best", 0.5, True), ("last", 0.5, False), ("best", None, False)],
)
def test_an_attacker_was_selected_if_a_figure_chose_it(tmp_path, kept, value, expected):
    assert not was_selected(tmp_path)
    write_record(AttackerNote("ab" * 32, kept=kept, value=value), tmp_path / ATTACKER_FILE)

    assert expected == was_selected(tmp_path)


def test_optimism_is_the_difference_with_an_interval_of_both_samples():
    found = optimism([1.0, 0.5] * 32, [0.5, 0.5, 1.0, 0.0] * 50, **OPTIONS)

    assert (64, 0.75) == (found.num_prompts, found.attack_success_rate.value)
    assert found.optimism.value == pytest.approx(0.25)
    assert 0.15 < found.optimism.low < 0.25 < found.optimism.high < 0.35


def test_the_best_of_many_equal_attackers_is_optimistic_by_what_choosing_adds():
    """Of eight equal attackers the best is 1.42 standard errors above the truth on average."""
    rng = np.random.default_rng(0)
    excess = []
    for _ in range(60):
        tries = rng.binomial(2, 0.5, size=(8, 64)) / 2
        best = tries[tries.mean(axis=1).argmax()]
        fresh = rng.binomial(2, 0.5, size=200) / 2
        excess.append(optimism(best.tolist(), fresh.tolist(), **OPTIONS).optimism.value)

    standard_error = np.sqrt(0.5 * 0.5 / 2 / 64)
    assert np.mean(excess) == pytest.approx(1.42 * standard_error, rel=0.25)
