import json
import shutil
from pathlib import Path

import pytest

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_check_says_that_params_yaml_is_usable(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["check"])
    assert capsys.readouterr().out.endswith("params.yaml is usable\n")


def test_check_reads_values_and_a_preset_as_if_params_yaml_had_them(
    restored, tmp_path, monkeypatch, capsys
):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["check", "--set", "training.algorithm.options.betta=1"])
    assert "did you mean 'beta'?" in capsys.readouterr().err
    assert 2 == run_command(["check", "--preset", "local_chat"])
    assert "models.target.path must name" in capsys.readouterr().err
    assert 0 == run_command(["check"])


def test_params_tells_a_key_whose_value_is_the_mistake(restored, tmp_path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text("training: {lr: fast}\n", "utf-8")
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["check"])
    assert "see 'astra params training.lr'" in capsys.readouterr().err
    assert 0 == run_command(["params", "training.lr"])
    told = capsys.readouterr()
    assert told.out.startswith("training.lr: ")
    assert "these are defaults, for training.lr: input should be a valid number" in told.err
    assert 0 == run_command(["params"])
    assert "\ntraining.lr: " in capsys.readouterr().out


def test_params_shows_what_leads_to_an_item_and_says_so(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["params", "flow.timeouts_s.training"])
    told = capsys.readouterr()
    assert told.out.startswith("flow.timeouts_s: ")
    assert "warning: 'flow.timeouts_s.training' has no line of its own" in told.err


@pytest.fixture
def small_file(restored, tmp_path, monkeypatch):
    """A folder with params.yaml and a file of three prompts, too few to go on with."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "mine.txt").write_text("How are you today?\nWhat is it?\nWhat is it?\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.real
def test_the_gate_sets_the_status_and_nothing_is_left(small_file, capfd):
    before = sorted(small_file.rglob("*"))
    status = run_command(["validate", "mine.txt", "--json"])
    told = capfd.readouterr()
    record = json.loads(told.out)

    assert 3 == status
    assert [{"line": 3, "kind": "duplicate", "of": 2}] == [
        {key: finding[key] for key in ("line", "kind", "of")} for finding in record["findings"]
    ]
    assert told.err.startswith("error: prompts must pass 'train_rows'")
    assert before == sorted(small_file.rglob("*"))
    assert 2 == run_command(["validate", "none.txt"])
    assert "FILE must name a file of prompts, got 'none.txt'" in capfd.readouterr().err
    assert 2 == run_command(["validate", "mine.txt", "--set", "validation.max_words=x"])
    assert "validation.max_words: input should be a valid integer" in capfd.readouterr().err


@pytest.mark.real
def test_a_column_may_be_named_where_params_have_no_file_yet(small_file, capfd):
    rows = "text,place\nHow are you?,here\nHow are you?,there\n"
    (small_file / "mine.csv").write_text(rows, "utf-8")

    assert 3 == run_command(["validate", "mine.csv", "--set", "prompts.context_column=place"])
    assert capfd.readouterr().out.startswith("mine.csv: 2 of 2 rows usable")
