import pytest
from each_row import each_row
from tiny_benchmark import SMALL

from astra_core.metrics.statistics import Interval
from benchmarks import copies
from benchmarks.measures import staleness
from benchmarks.measures.staleness import Trained, seeds_table, verdicts


def trained(success, seconds=10.0):
    return Trained(Interval(0.3, 0.2, 0.4), Interval(success, 0.0, 1.0), seconds, 7.0)


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]


IN_STEP = [trained(0.6), trained(0.7), trained(0.8)]
"""The mean is 70 %, Student's interval of three 70 % -+ 4.303 * 10 % / sqrt(3)."""


@each_row(("loss", "verdict"), [(0.0, "yes"), (0.24, "yes"), (0.26, "NO")])
def test_a_mean_below_the_interval_of_those_in_step_is_told(loss, verdict):
    ahead = [trained(own.success.value - loss, seconds=8.0) for own in IN_STEP]
    text, is_kept = verdicts({0: IN_STEP, 1: ahead})
    first, second = rows(text)

    assert ["0", "70.0% [45.2%, 94.8%]"] == first[:2]
    assert f"{0 - loss:+.1%} [{0 - loss:+.1%}, {0 - loss:+.1%}]" == second[2]
    assert ["+20%", verdict] == second[3:]
    assert is_kept is (verdict == "yes")


def test_each_seed_has_its_success_and_its_seconds():
    text = seeds_table([4, 5], {0: IN_STEP[:2], 2: [trained(0.5), trained(0.25, 12.5)]})

    assert [
        ["4", "30.0%", "60.0%", "10.0 (7.0)", "50.0%", "10.0 (7.0)"],
        ["5", "30.0%", "70.0%", "10.0 (7.0)", "25.0%", "12.5 (7.0)"],
    ] == rows(text)


@pytest.mark.wide
def test_a_seed_is_trained_in_step_and_ahead(tmp_path, monkeypatch, capsys):
    copies.copy_project(tmp_path, *SMALL)
    # The project that is copied is a small one.
    monkeypatch.setattr(copies, "ROOT", tmp_path)
    assert 0 == staleness.main(["--seeds", "3", "--set", "training.training_steps=2"])
    text = capsys.readouterr().out

    assert "| training seed | untrained | `max_versions: 0` |" in text
    assert 1 == sum(line.startswith("| 3 |") for line in text.splitlines())
