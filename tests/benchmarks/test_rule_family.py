import json

import pytest

from benchmarks import rule_family
from benchmarks.measures import method
from benchmarks.rule_cells import SHIPPED, RuleCell
from benchmarks.rule_family import RELEASE, SMALL, main, share, tables

SIDE = {"success": 0.2, "invented": 0.1, "unique": 0.9, "kl_nats": 3.0}
FOUND = {
    "rule": {"kind": "word", "text": "says 'dog'"},
    "ceiling": 0.8,
    "gain": {"value": 0.3, "low": 0.2, "high": 0.4},
    "untrained": SIDE,
    "trained": {**SIDE, "success": 0.5},
    "moves": [{"nats": 2.0}, {"nats": 3.5}],
    "cpu_seconds": 61.0,
}


@pytest.mark.real
def test_a_finished_cell_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def run(cell, *, count):
        ran.append((cell, count))
        return FOUND

    monkeypatch.setattr(rule_family, "run_rule_cell", run)
    arguments = ["--family", "rules", "--rules", "2", "--algorithms", "dpo", "--seeds", "1"]
    arguments += ["--cache", str(tmp_path)]

    assert 0 == method.main([*arguments, "--cells", "1"])
    assert "1 of 2 cells" in capsys.readouterr().out
    assert 0 == main([*arguments[2:], "--small", "--set", "training.lr=1e-5", "--release", "7"])
    assert 0 == main(arguments[2:])

    changed = [
        RuleCell(SHIPPED, 7, number, "dpo", 1, (*SMALL, "training.lr=1e-5")) for number in (0, 1)
    ]
    plain = [RuleCell(SHIPPED, RELEASE, number, "dpo", 1) for number in (0, 1)]
    assert [(cell, 2) for cell in (plain[0], *changed, plain[1])] == ran


def test_a_share_is_of_what_there_is_to_gain():
    assert pytest.approx(0.5) == share(FOUND)


def test_a_row_for_each_rule_and_one_for_each_algorithm():
    missed = {**FOUND, "gain": {"value": 0.0, "low": -0.1, "high": 0.1}}
    cells = [RuleCell(SHIPPED, 1, 0, "dpo", seed) for seed in (1, 2)]
    found = [(cells[0], FOUND), (cells[1], missed), (RuleCell(SHIPPED, 1, 0, "ppo", 1), FOUND)]

    lines = tables(found).splitlines()

    assert "| shipped_model | word | says 'dog' | 80.0 | 20.0 | 25.0 | 50.0 |" == lines[2]
    expected = "| shipped_model | dpo | 2 | 20.0 | 50.0 | 25.0 | 1 of 2 | 1 of 1 | 10.0 | 10.0 "
    assert f"{expected}| 0.90 | 3.0 | 3.5 | 61 |" == lines[6]
    assert lines[4].count("|") == lines[6].count("|")
    assert json.dumps(FOUND)


def test_an_attacker_that_is_no_model_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--attackers", str(tmp_path)])

    assert "must be shipped or a Hugging Face folder, got " in capsys.readouterr().err
