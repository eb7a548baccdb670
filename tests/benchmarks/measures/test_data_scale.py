import json

import pytest
from each_row import each_row

from benchmarks.__main__ import main
from benchmarks.measures import data_scale
from benchmarks.measures.data_scale import Measurement, measurements, write_prompts


@pytest.mark.wide
def test_every_stage_is_measured_at_every_size_in_a_process_of_its_own():
    found = list(measurements([400, 800]))

    expected = [(stage, size) for size in (400, 800) for stage in ("prompts", "validation")]
    assert expected == [(one.stage, one.num_rows) for one in found]
    for one in found:
        assert 0.8 * one.num_rows < one.num_kept <= one.num_rows
        assert one.seconds > 0.0 < one.processor_s
        # Of an interpreter with its libraries, not of this test run.
        assert 30 < one.peak_mib < data_scale.LIMIT_MIB
        # Too few rows to tell how time grows with them.
        assert one.slope is None


@pytest.mark.wide
def test_too_few_prompts_for_the_gate_are_one_line(capsys):
    assert 1 == main(["data_scale", "100"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: prompts must pass")


def test_the_slope_is_one_where_time_grows_as_the_rows_do(monkeypatch):
    monkeypatch.setattr(data_scale, "MIN_SLOPE_ROWS", 60)
    monkeypatch.setattr(data_scale, "ProcessPoolExecutor", Linear)
    slopes = [one.slope for one in measurements([60, 300])]

    assert [None, None, pytest.approx(1.0), pytest.approx(1.0)] == slopes


@each_row(
    ("peak_mib", "slope", "verdict"),
    [(100, None, "kept"), (100, 1.0, "kept"), (3000, 1.0, "EXCEEDED"), (100, 2.0, "EXCEEDED")],
)
def test_a_row_says_whether_the_limits_are_kept(peak_mib, slope, verdict):
    assert verdict in Measurement("prompts", 10, 10, 9.0, 1.0, peak_mib, slope).row()


def test_prompts_are_the_same_every_time_and_all_different(tmp_path):
    for name in ("a", "b"):
        write_prompts(2000, tmp_path / name)
    texts = [json.loads(line)["text"] for line in (tmp_path / "a").read_text().splitlines()]

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert 2000 == len(texts) == len(set(texts))


class Linear:
    """Measures nothing: a stage that takes a microsecond per row."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, _, stage, size, __):
        # By the clock on the wall, a neighbour comes while the larger one is at work.
        self.found = (stage, size, size, size * size * 1e-6, size * 1e-6, 1.0)
        return self

    def result(self):
        return self.found
