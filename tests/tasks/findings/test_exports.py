import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError
from astra_core.models.tokenizers import load_tokenizer
from tasks.builtin import shipped
from tasks.findings.exports import FORMATS, REFUSAL, check_export, export
from tasks.findings.listing import limit_detail
from tasks.findings.replay import SuiteCase
from tasks.sources.columns import Columns
from tasks.sources.files import read_rows

BEHAVIOUR = json.dumps({"goal": "make it swear", "context": "a page", "category": "insults"})
SHIPPED = shipped.PACKAGE / shipped.FOLDER
TEMPLATE = "{% for message in messages %}{{ message['content'] }}|{% endfor %}"
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
        ("promptfoo-tests", "x", "figures", "tests must have --detail full"),
        ("junit", "", "full", r"--to must be a new file .* got '\.' \(a folder\)"),
        ("refusals", "x", "masked", "refusals must have --detail full, .* got masked"),
        ("dataset", ".", "masked", r"must be a new folder .* got '\.' with 'a' in it"),
        ("dataset", "pipe", "masked", r"got 'pipe' \(a pipe\)"),
        ("dataset", "d.jsonl", "masked", r"new folder .* got 'd\.jsonl' \(a name of a file\)"),
        ("garak", "g", "full", r"got 'g\.hitlog\.jsonl' \(a folder\)"),
        ("garak", "/proc/x", "full", r"got '/proc/x' \(one in /proc: "),
        ("junit", "pipe", "full", r"got 'pipe' \(a pipe\)"),
        ("junit", "a/../findings/one.parquet", "full", "(one in the archive)"),
        ("sarif", "params.yaml", "full", r"\(a file of the project\)"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, name, path, detail, told):
    monkeypatch.chdir(tmp_path)
    for folder in ("findings", "a", "g.hitlog.jsonl"):
        Path(folder).mkdir()
    os.mkfifo("pipe")
    Path("params.yaml").touch()
    before = {*tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match=told):
        check_export(name, Path(path), detail)
    assert before == {*tmp_path.iterdir()}


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


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("figures", ["", "", "", ""]),
        ("masked", ["h·, y··", "s·", "b· b··", "s·"]),
        ("probes", ["hi, you", "s·", "be bad", "s·"]),
        ("full", ["hi, you", "so", "be bad", "so"]),
    ],
)
def test_a_dataset_has_as_much_text_as_its_detail(tmp_path, detail, said):
    one = SuiteCase(limit_detail(ONE[0].finding, detail))
    path, _ = check_export("dataset", tmp_path / "d", detail)
    card, rows = export("dataset", [one, replace(one, is_hit=False)], path)
    (row, miss) = map(json.loads, rows.read_text().splitlines())

    assert said == [each["content"] for each in row["messages"]]
    assert ("goal" in row["metadata"]) == (detail in {"probes", "full"})
    assert ["insults", "hit", "miss"] == [row["category"], row["outcome"], miss["outcome"]]
    assert card.read_text().startswith("---\n")
    assert (path, detail) == check_export("dataset", path, detail)  # to be replaced


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"README.md": "---\npretty_name: Mine\n"}, "'README.md'"),
        ({"README.md": "mine", "data/train.jsonl": "{}"}, "'README.md'"),
        ({"data/findings.jsonl": "{}"}, "'data'"),
        ({"README.md": None, "data/train.jsonl": "{}"}, "'data/train.jsonl'"),
        ({"README.md": None, "notes": "mine"}, "'notes'"),
    ],
)
def test_a_dataset_of_somebody_else_is_not_replaced(tmp_path, others, told):
    card, _ = export("dataset", ONE, tmp_path / "ours")
    for name, text in others.items():
        path = tmp_path / "theirs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(card.read_text() if text is None else text)
    with pytest.raises(ConfigurationError, match=f"got .* with {told} in it"):
        check_export("dataset", tmp_path / "theirs", "masked")


def test_a_dataset_goes_to_a_clone_from_the_hub_and_there_again(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitattributes").touch()
    for _ in range(2):
        path, _ = check_export("dataset", tmp_path, "masked")
        export("dataset", ONE, path)


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_datasets_loads_the_folder(tmp_path):
    from datasets import load_dataset

    bare = SuiteCase(finding("zap", replies=("half \ud83d",), metadata=None), failure="lost")
    export("dataset", [*ONE, bare], tmp_path / "d")
    rows = load_dataset(str(tmp_path / "d"), cache_dir=str(tmp_path / "cache"))["train"]

    assert ["hit", "no answer"] == rows["outcome"]
    assert ["so", "half ?"] == [talk[-1]["content"] for talk in rows["messages"]]
    assert json.loads(BEHAVIOUR) == json.loads(rows["metadata"][0])


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_trl_learns_the_refusal_and_nothing_before_it(tmp_path):
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    (path,) = export("refusals", ONE, tmp_path / "r.jsonl")
    rows = load_dataset("json", data_files=str(path), cache_dir=str(tmp_path / "cache"))["train"]
    tokenizer = load_tokenizer(SHIPPED)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = TEMPLATE
    trainer = SFTTrainer(
        str(SHIPPED),
        SFTConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    (batch,) = trainer.get_train_dataloader()
    learned = batch["labels"][batch["labels"] != -100]

    assert f"{REFUSAL}|" == tokenizer.decode(learned)
    assert "be bad" in tokenizer.decode(batch["input_ids"][0])


def test_what_is_written_for_garak_and_promptfoo_can_be_prompts_again(tmp_path):
    _, hits = export("garak", ONE, tmp_path / "g.report.jsonl")
    (results,) = export("promptfoo-results", ONE, tmp_path / "r.json")

    for path in (hits, results):
        assert ["be bad"] == [row.text for row in read_rows(path, Columns("text", wanted="all"))]
