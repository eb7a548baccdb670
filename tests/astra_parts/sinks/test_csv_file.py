import csv

from astra_parts.sink import Recorder, SinkRun
from astra_parts.sinks.csv_file import FILE, CsvSink
from astra_parts.testing import check_sink


def recorded(folder, steps):
    recorder = Recorder(CsvSink(CsvSink.Options(), run=SinkRun("k", folder, {})))
    for figures, step in steps:
        recorder.log_step(figures, step)
    recorder.finish()
    with (folder / FILE).open(newline="") as file:
        return list(csv.reader(file))


def test_the_file_has_a_line_for_each_figure(tmp_path):
    rows = recorded(tmp_path / "x", [({"train/loss": 0.1, "a/b,c": 1e-9}, 1), ({"a/b": 2}, 2)])

    assert ["step", "name", "value"] == rows[0]
    assert [["1", "train/loss", "0.1"], ["1", "a/b,c", "1e-09"], ["2", "a/b", "2.0"]] == rows[1:]


def test_a_line_that_a_kill_has_cut_is_written_again(tmp_path):
    steps = [({"train/loss": 0.125, "a/b": 0.5}, step) for step in (1, 2, 3)]
    whole = recorded(tmp_path / "whole", steps)
    for end in range(1, 30):
        folder = tmp_path / f"cut_{end}"
        recorded(folder, steps[:2])
        path = folder / FILE
        path.write_bytes(path.read_bytes()[:-end])

        assert whole == recorded(folder, steps)


def test_it_keeps_the_contract():
    check_sink("csv")
