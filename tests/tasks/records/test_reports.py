import math
from dataclasses import dataclass

import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.records.reports import nan_as_null, read_record, read_report, write_record


@dataclass(frozen=True, slots=True)
class Counted:
    name: str
    mean: float | None
    inner: dict[str, int]


def test_a_record_survives_its_file_and_what_is_no_number_is_null(tmp_path):
    write_record(Counted("x", math.nan, {"a": 1}), tmp_path / "r.json")

    expected = '{\n  "inner": {\n    "a": 1\n  },\n  "mean": null,\n  "name": "x"\n}\n'
    assert expected == (tmp_path / "r.json").read_text()
    assert Counted("x", None, {"a": 1}) == read_record(tmp_path / "r.json", Counted)


@each_row(
    ("record", "words"),
    [
        ({"name": "x", "inner": {}}, "must hold mean, got a report without it; run the stages"),
        ({"name": 3, "mean": 0.5, "inner": {}}, "must hold name, got int in its place; run"),
        ({"name": "x", "mean": 0.5, "inner": {"a": []}}, "must hold inner.a, got list in its"),
    ],
)
def test_an_old_or_damaged_record_is_one_line(tmp_path, record, words):
    write_record(record, tmp_path / "r.json")

    with pytest.raises(DataError, match=words) as refusal:
        read_record(tmp_path / "r.json", Counted)
    assert 1 == len(str(refusal.value).splitlines())


def test_what_json_cannot_hold_becomes_null():
    assert {"a": None, "b": [1.0, None]} == nan_as_null({"a": math.nan, "b": [1.0, math.inf]})


def test_a_key_of_an_inner_record_must_be_there(tmp_path):
    write_record({"attacker": {"value": 0.5}}, tmp_path / "r.json")

    assert {"attacker": {"value": 0.5}} == read_report(tmp_path / "r.json", keys=["attacker.value"])
    with pytest.raises(DataError, match=r"must hold attacker\.low, got a report without it"):
        read_report(tmp_path / "r.json", keys=["attacker.low"])


@each_row("content", [None, b"", b"{", b"\xff\xfe"])
def test_a_report_that_is_none_is_one_line(tmp_path, content):
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DataError, match=r"report\.json must be a JSON report, got \w+; run"):
        read_report(path)
