import pytest
from tiny_benchmark import QUICK, TINY

from benchmarks.rollout import report

WAYS = ("| ours, 2 trees at once |", "| ours, 1 tree |", "| plain way |", "| ours in bf16, 2 trees")


def test_rollout_reports_costs_ratio_and_equality():
    found = report(TINY, QUICK)
    share, gap = found.figures

    assert ["rollout"] == list(found.ratios)
    assert found.ratios["rollout"] > 0.0
    assert all(way in found.tables[0] for way in WAYS)
    assert "rollout: tokens that differ from the plain way's" == share.name
    assert share.value == 0.0
    assert gap.value == pytest.approx(0.0, abs=1e-5)
