from tiny_benchmark import QUICK, TINY

from benchmarks.decode import BATCH_SIZES, report


def test_decode_reports_speed_beside_the_limit():
    found = report(TINY, QUICK)
    rows = found.tables[0].splitlines()[2:]

    assert [str(size) for size in BATCH_SIZES] == [row.split("|")[1].strip() for row in rows]
    assert {6} == {len(row.split("|")) - 2 for row in rows}
    assert all(figure.value > 0.0 for figure in found.figures)
