import pytest
from tiny_benchmark import QUICK, TINY

from benchmarks.limits import Machine
from benchmarks.measures.decode import BATCH_SIZES, report, split_figures

pytestmark = pytest.mark.routes


@pytest.mark.wide
def test_decode_reports_speed_beside_the_limit():
    found = report(TINY, QUICK)
    rows = found.tables[0].splitlines()[2:]

    assert [str(size) for size in BATCH_SIZES] == [row.split("|")[1].strip() for row in rows]
    assert {6} == {len(row.split("|")) - 2 for row in rows}
    assert all(figure.value > 0.0 for figure in found.figures)


def test_the_rate_of_split_products_is_reported_where_they_are_used():
    used, unused = (Machine(10.0, 100.0, split_flops_per_s=rate) for rate in (2e9, 0.0))

    assert [2.0] == [figure.value for figure in split_figures(used)]
    assert [] == split_figures(unused)
