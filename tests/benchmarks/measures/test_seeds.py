import re

import pytest
from tiny_benchmark import SMALL

from benchmarks import copies
from benchmarks.measures import seeds


def test_an_interval_is_spelled_in_percent():
    interval = {"value": 0.5, "low": 0.0625, "high": 1.0}

    assert "50.0% [6.2%, 100.0%]" == seeds._spelled(interval)


def test_the_seeds_are_numbers(capsys):
    with pytest.raises(SystemExit, match="2"):
        seeds.main(["three"])

    assert "must be a whole number of at least 0, got 'three'" in capsys.readouterr().err


@pytest.mark.wide
def test_a_seed_is_a_row_of_what_its_run_found(tmp_path, monkeypatch, capsys):
    copies.copy_project(tmp_path, *SMALL)
    # The project that is copied is a small one.
    monkeypatch.setattr(copies, "ROOT", tmp_path)
    before = (tmp_path / "params.yaml").read_bytes()
    assert 0 == seeds.main(["3"])
    head, rule, *rows = capsys.readouterr().out.splitlines()

    interval = r"\d+\.\d% \[\d+\.\d%, \d+\.\d%\]"
    assert seeds.HEADER.splitlines() == [head, rule]
    (row,) = rows
    pattern = rf"\| 3 \| {interval} \| {interval} \| [01]\.\d\d \| \d+\.\d\d \|"
    assert re.fullmatch(pattern, row)
    assert head.count("|") == row.count("|")
    assert before == (tmp_path / "params.yaml").read_bytes()
    assert not (tmp_path / "reports").exists()
