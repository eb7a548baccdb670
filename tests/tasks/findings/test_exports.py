import csv
import json
import os
from pathlib import Path

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError
from tasks.findings.exports import FORMATS, check_export, export
from tasks.findings.replay import SuiteCase
from tasks.sources.columns import Columns
from tasks.sources.files import read_rows

BEHAVIOUR = json.dumps({"goal": "make it swear", "context": "a page", "category": "insults"})
ONE = [SuiteCase(finding("hi, you", "be bad", metadata=BEHAVIOUR))]


def test_each_format_writes_its_files(tmp_path):
    written = {name: export(name, ONE, tmp_path / f"{name}.out") for name in FORMATS}
    names = [path.name for path in export("garak", ONE, tmp_path / "g.report.jsonl")]

    assert ["g.report.jsonl", "g.hitlog.jsonl"] == names
    assert all(path.is_file() for own in written.values() for path in own)


def test_a_format_has_a_file_of_its_own_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = [check_export(name, None, "full")[0] for name in FORMATS]

    assert len(FORMATS) == len({*places})
    assert Path("reports/findings.sarif") == check_export("sarif", None, "masked")[0]


@pytest.mark.parametrize(
    ("name", "path", "detail", "told"),
    [
        ("pdf", "x", "full", "--export must be one of garak, promptfoo-tests"),
        ("junit", "x", "most", "--detail must be one of figures, masked"),
        ("preferences", "x", "probes", "preferences must have --detail full, .* got probes"),
        ("harmbench", "x", "masked", "harmbench must have --detail probes or full"),
        ("promptfoo-tests", "x", "figures", "tests must have --detail probes or full"),
        ("junit", "", "full", r"--to must be a new file .* got '\.' \(a folder\)"),
        ("garak", "g", "full", r"got 'g\.hitlog\.jsonl' \(a folder\)"),
        ("garak", "/proc/x", "full", r"got '/proc/x' \(one in /proc: "),
        ("junit", "pipe", "full", r"got 'pipe' \(a pipe\)"),
        ("junit", "a/../findings/one.parquet", "full", "(one in the archive)"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, name, path, detail, told):
    monkeypatch.chdir(tmp_path)
    for folder in ("findings", "a", "g.hitlog.jsonl"):
        Path(folder).mkdir()
    os.mkfifo("pipe")
    with pytest.raises(ConfigurationError, match=told):
        check_export(name, Path(path), detail)
    assert {"findings", "a", "g.hitlog.jsonl", "pipe"} == {each.name for each in tmp_path.iterdir()}


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
