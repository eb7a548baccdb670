import math

import pytest
from each_row import each_row
from small_world import PARAMS, write_world

from astra_core.errors import ConfigurationError, DataError
from tasks.trials.rate_range import Outcome, rates_between, run_rate_range, suggest_rate


def outcome(rate, nats):
    return Outcome(rate, nats, 0.1, 0.2, 3.0)


def test_the_suggestion_is_the_highest_rate_before_the_first_that_moves_too_far():
    found = [outcome(1e-3, 3.0), outcome(1e-5, 0.1), outcome(1e-4, 2.0), outcome(1e-2, 1.0)]

    assert 1e-2 == suggest_rate(found, 4.0)
    assert 1e-4 == suggest_rate(found, 2.5)
    assert suggest_rate(found, 0.05) is None
    assert 1e-5 == suggest_rate([outcome(1e-5, 0.1), outcome(1e-4, math.nan)], 4.0)


@each_row("wrong", [(1e-3, 1e-4, 3), (0.0, 1e-3, 3), (1e-4, 1e-3, 1)])
def test_what_is_no_range_is_one_line(wrong):
    with pytest.raises(ConfigurationError, match="rates must go up from --lowest to --highest"):
        rates_between(*wrong)


@pytest.mark.real
def test_a_higher_rate_moves_further_and_nothing_is_changed(tmp_path, monkeypatch, capfd, restored):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    found = run_rate_range(PARAMS, [1e-5, 1e-2], target=1e-2)

    lines = capfd.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    moved = [float(row[1]) for row in rows if row and row[0] in {"untrained", "1.0e-05", "1.0e-02"}]
    assert 0.0 == moved[0] <= moved[1] < moved[2]
    assert 1e-5 == found
    assert lines[-1].startswith("suggested: training.lr 1e-05")
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_without_the_stages_before_it_is_one_line(tmp_path, monkeypatch, restored):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match="got no such path"):
        run_rate_range(PARAMS, [1e-5, 1e-2])
