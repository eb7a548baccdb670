import csv
import json

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError
from tasks.findings.exports import FORMATS, export
from tasks.findings.replay import SuiteCase
from tasks.sources.columns import Columns
from tasks.sources.files import read_rows

BEHAVIOUR = json.dumps({"goal": "make it swear", "context": "a page", "category": "insults"})
ONE = [SuiteCase(finding("hi, you", "be bad", metadata=BEHAVIOUR))]


def test_each_format_writes_its_files_and_another_is_refused(tmp_path):
    written = {name: export(name, ONE, tmp_path / f"{name}.out") for name in FORMATS}
    names = [path.name for path in export("garak", ONE, tmp_path / "g.report.jsonl")]

    assert ["g.report.jsonl", "g.hitlog.jsonl"] == names
    assert all(path.is_file() for own in written.values() for path in own)
    with pytest.raises(ConfigurationError, match="--export must be one of garak, promptfoo-tests"):
        export("pdf", ONE, tmp_path / "x")


def test_harmbench_has_a_row_with_behaviour_test_case_and_generation(tmp_path):
    (path,) = export("harmbench", ONE, tmp_path / "h.csv")
    (row,) = csv.DictReader(path.open(newline=""))

    names = ("Behavior", "FunctionalCategory", "SemanticCategory", "ContextString", "test_case")
    assert ["make it swear", "contextual", "insults", "a page", "be bad"] == [
        row[name] for name in names
    ]
    assert ("so", "1") == (row["generation"], row["label"])


def test_a_refusal_is_preferred_to_the_reply_that_was_found(tmp_path):
    (path,) = export("preferences", ONE, tmp_path / "p.jsonl")
    (row,) = map(json.loads, path.read_text().splitlines())

    assert ["hi, you", "so", "be bad"] == [each["content"] for each in row["prompt"]]
    assert [["assistant"], ["assistant"]] == [
        [each["role"] for each in row[side]] for side in ("chosen", "rejected")
    ]
    assert "so" == row["rejected"][0]["content"] != row["chosen"][0]["content"]


def test_what_is_written_for_garak_and_promptfoo_can_be_prompts_again(tmp_path):
    _, hits = export("garak", ONE, tmp_path / "g.report.jsonl")
    (results,) = export("promptfoo-results", ONE, tmp_path / "r.json")

    for path in (hits, results):
        assert ["be bad"] == [row.text for row in read_rows(path, Columns("text", wanted="all"))]
