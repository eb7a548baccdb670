import json
import shutil
from pathlib import Path

import pytest
from small_world import write_world
from tiny_chats import chat_model

from astra_parts.testing import tiny_language_model
from flows.cli import run_command

ROOT = Path(__file__).parents[3]
SMALL = (
    *("evaluation.num_prompts=3", "evaluation.num_rollouts=1", "evaluation.num_resamples=100"),
    *("system.probe.max_new_tokens=6", "evaluation.depth=2"),
)


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    tiny_language_model(seed=11).save("a/attacker")
    return [word for value in SMALL for word in ("--set", value)]


@pytest.mark.real
def test_a_chat_model_fills_the_table(project, capsys):
    chat_model().save("chat")
    assert 0 == run_command(["baselines", "a/attacker", "--speaker", "chat", *project])
    head, *rows, told = capsys.readouterr().out.splitlines()

    assert head.startswith("Attacker")
    assert 8 == len(rows) == len(list(Path(".astra/baselines").iterdir()))
    assert told.startswith("2 replies of the target on each of 3 prompts")
    assert not any("Message" in row for row in rows)


def test_the_table_is_json_on_demand_and_a_report(project, capsys):
    Path("script.yaml").write_text("name: scripted\noptions: {rules: [], otherwise: [so bad]}\n")
    words = ["baselines", "a/attacker", "--speaker", "script.yaml", "--json"]
    assert 0 == run_command([*words, *project])
    found = json.loads(capsys.readouterr().out)

    assert found == json.loads(Path("reports/baselines.json").read_text())
    assert [6] * 8 == [row["replies"] for row in found["rows"]]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["7"], "version '7' of 'attacker' must be in the registry, got none"),
        (["a/attacker", "--speaker", "gone"], "gone must exist, got no such file"),
        (["a/attacker", "--speaker", "x.yaml"], "unknown target 'nothing'"),
        (["a/attacker", "--speaker", "models/base/tiny"], "able to chat, got models/base/tiny"),
        (["a/attacker", "--set", "prompts.path=x"], "--set must change training_seed"),
    ],
)
def test_a_mistake_is_one_line(project, capsys, words, told):
    Path("x.yaml").write_text("name: nothing\n")
    assert 2 == run_command(["baselines", *words, *(project if "--set" not in words else [])])
    # Beside them are bars of what is loaded.
    (line,) = [own for own in capsys.readouterr().err.splitlines() if own.startswith("error")]
    assert told in line
