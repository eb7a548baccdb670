import pytest
from tiny_benchmark import QUICK, TINY

from benchmarks.measures.rollout import report

WAYS = ("| ours, 2 trees at once |", "| ours, 1 tree |", "| plain way |", "| ours in bf16, 2 trees")


@pytest.mark.wide
def test_rollout_reports_costs_ratio_and_equality():
    found = report(TINY, QUICK)
    share, gap, of_limit, at_limit = found.figures

    assert ["rollout"] == list(found.ratios)
    assert found.ratios["rollout"] > 0.0
    assert all(way in found.tables[0] for way in WAYS)
    assert "rollout: tokens that differ from the plain way's" == share.name
    assert share.value == 0.0
    assert gap.value == pytest.approx(0.0, abs=1e-5)
    assert 0.0 < of_limit.value
    # How far ours is from the limit is what the ratio could still grow by.
    assert found.ratios["rollout"] == pytest.approx(at_limit.value * of_limit.value / 100.0)
