import pytest
from tiny_benchmark import QUICK, TINY

from benchmarks.update import report

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's import warns about other libraries


def test_update_reports_costs_ratios_and_equality():
    found = report(TINY, QUICK)
    gaps = [figure for figure in found.figures if "gap" in figure.name]

    assert ["update", "update vs TRL", "update bf16"] == list(found.ratios)
    assert ["fp32", "bf16"] == [text.split(",")[1].strip() for text in found.tables]
    assert all(way in text for way in ("ours", "plain way", "TRL") for text in found.tables)
    assert len(gaps) == 8
    assert all(figure.is_kept for figure in gaps)
