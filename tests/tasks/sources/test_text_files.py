from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.sources.labelled import read_labelled
from tasks.sources.text_files import cell_value, column_kinds, delimiter, kind_of_file, lines_of


@each_row(
    ("name", "kind"),
    [("a.TSV", ".csv"), ("a.jsonl.gz", ".jsonl"), ("a.yml", ".yaml"), ("a.b.txt", ".txt")],
)
def test_the_suffix_before_gz_chooses_the_reader(name, kind):
    assert kind == kind_of_file(Path(name))


@each_row(
    ("header", "found"),
    [("a;text", ";"), ("text\ta", "\t"), ("text", ","), ("a;b", ";"), ('"a;b",text', ",")],
)
def test_the_delimiter_is_the_one_that_finds_the_column(tmp_path, header, found):
    path = tmp_path / "p.csv"
    path.write_text(header + "\n")

    assert found == delimiter(path, {"text"})


def test_a_line_without_end_is_refused_and_marks_between_files_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.sources.text_files.LONGEST_LINE", 10)
    path = tmp_path / "p.txt"
    path.write_bytes("a\n".encode("utf-8-sig") + "b\n".encode("utf-8-sig") + b"x" * 11)
    lines = lines_of(path)

    assert ["a\n", "b\n"] == [next(lines), next(lines)]
    with pytest.raises(DataError, match="line 3 must have at most"):
        next(lines)


def test_labelled_replies_are_read_with_other_delimiters_too(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("reply\tlabel\nyou, fool\t1\n")

    (row,) = read_labelled(path)
    assert ("you, fool", True, "line 2") == (row.exchange.reply, row.is_bad, row.place)


@each_row(
    ("cells", "kind"),
    [
        (["1", "-20", "0"], int),
        (["1", "", None], int),
        (["1", "0.5"], float),
        (["1e-05", "-2.5E3"], float),
        (["1", "one"], str),
        (["007"], str),
        (["+1"], str),
        (["1,000"], str),
        ([" 1"], str),
        (["nan"], str),
        (["1e999"], str),
        (["12345678901234567890"], str),
        (["\u0661"], str),
        (["true"], str),
        (["", None], str),
        ([], str),
    ],
)
def test_a_column_holds_numbers_if_every_filled_cell_is_one(cells, kind):
    assert {"x": kind} == column_kinds([{"x": cell} for cell in cells], ["x"])


def test_columns_are_judged_apart():
    rows = [{"a": "1", "b": "1", "c": "x"}, {"a": "2", "b": "1.5", "c": "1"}]

    assert {"a": int, "b": float, "c": str} == column_kinds(rows, ["a", "b", "c"])


def test_a_cell_is_what_its_column_is():
    assert [3, 3.0, "3"] == [cell_value("3", kind) for kind in (int, float, str)]
    assert [None, ""] == [cell_value("", kind) for kind in (int, str)]
    assert cell_value(None, str) is None
