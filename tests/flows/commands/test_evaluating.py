import json
import shutil
from pathlib import Path

import pytest
from small_world import write_world

from astra_parts.testing import tiny_language_model
from flows.cli import run_command

ROOT = Path(__file__).parents[3]
SMALL = (
    *("evaluation.num_prompts=4", "evaluation.num_rollouts=1", "evaluation.strategy_calls=0"),
    *("evaluation.num_resamples=100", "system.probe.max_new_tokens=6", "evaluation.depth=1"),
)


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    tiny_language_model(seed=8).save("other")
    tiny_language_model(seed=11).save("a/attacker")
    return [word for value in SMALL for word in ("--set", value)]


@pytest.mark.real
def test_a_line_for_each_attacker_and_a_column_for_each_target(project, capsys):
    Path("rules.yaml").write_text("name: scripted\n")
    targets = ["--target", "other", "--target", "models/base/tiny", "--target", "rules.yaml"]
    assert 0 == run_command(["evaluate", "untrained", "x=a/attacker", *targets, *project])
    head, *rows, last = capsys.readouterr().out.splitlines()

    assert ["attack success", "other", "models/base/tiny", "rules.yaml"] == [
        word.strip() for word in head.split("  ") if word.strip()
    ]
    assert ["untrained", "x"] == [row.split()[0] for row in rows]
    assert all(3 == row.count("[") for row in rows)
    assert "on 4 test prompts" == last


def test_the_record_of_a_pair_is_json_on_demand(project, capsys):
    Path("params").mkdir()
    Path("params/three.yaml").write_text(
        "evaluation: {num_prompts: 3}\nprompts: {text_column: q}\n"
    )
    words = ["evaluate", "a/attacker", "--json", *project[2:], "--preset", "three"]
    assert 0 == run_command(words)
    (cell,) = json.loads(capsys.readouterr().out)

    assert ("a/attacker", "params.yaml", 3) == (
        cell["attacker"],
        cell["target"],
        cell["record"]["num_prompts"],
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["7"], "version '7' of 'attacker' must be in the registry, got none"),
        (["x=a/attacker", "x=other"], "attackers must have names of their own, got 'x' twice"),
        (["untrained", "--target", "gone"], "gone must exist, got no such file"),
        (["untrained", "--set", "prompts.path=x"], "--set must change training_seed"),
    ],
)
def test_a_mistake_is_one_line(project, capsys, words, told):
    assert 2 == run_command(["evaluate", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
