import json
import shutil
from pathlib import Path

import pytest

from flows.cli import run_command

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    """A folder with params.yaml and a file of three prompts, too few to go on with."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "mine.txt").write_text("How are you today?\nWhat is it?\nWhat is it?\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_gate_sets_the_status_and_nothing_is_left(project, capfd):
    before = sorted(project.rglob("*"))
    status = run_command(["validate", "mine.txt", "--json"])
    told = capfd.readouterr()
    record = json.loads(told.out)

    assert 3 == status
    assert [{"line": 3, "kind": "duplicate", "of": 2}] == [
        {key: finding[key] for key in ("line", "kind", "of")} for finding in record["findings"]
    ]
    assert told.err.startswith("error: prompts must pass 'train_rows'")
    assert before == sorted(project.rglob("*"))
    assert 2 == run_command(["validate", "none.txt"])
    assert "FILE must name a file of prompts, got 'none.txt'" in capfd.readouterr().err
    assert 2 == run_command(["validate", "mine.txt", "--set", "validation.max_words=x"])
    assert "validation.max_words: input should be a valid integer" in capfd.readouterr().err
