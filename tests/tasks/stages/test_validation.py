import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from each_row import each_row

from astra_core.config import Choice, SystemConfiguration
from astra_core.errors import DataError, GateError, ScorerError
from astra_core.scorer import Scorer
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params, ValidationConfiguration
from tasks.pipeline.stage import sections_for
from tasks.records import prompt_pieces
from tasks.stages import validation
from tasks.stages.prompts import COLUMNS, SPLITS, PromptsParams, PromptsSetup, prepare_prompts
from tasks.stages.validation import ValidationParams, ValidationSetup, validate_prompts

pytestmark = pytest.mark.real  # a stage, or what one serves, on files

CONFIG = ValidationConfiguration(min_prompts=1, max_rejected_fraction=0.9)
PHRASES = SystemConfiguration(scorer=Choice(name="phrases", options={"phrases": ["darn"]}))
LOCAL = Choice(name="local")
GOOD = [
    f"Tell me of the {word} in your garden"
    for word in ("rose", "lily", "oak", "elm", "fern", "moss")
]
BAD = [
    "see http://a.b for more of it",
    "write to jane@mail.example.org or u/somebody",
    "well darn it all",
    "word " * 5000,
    "x" * 100_000,
]


class SilentScorer(Scorer):
    """Forgets to answer, which must not pass for an answer."""

    version = "silent"

    def score(self, texts):
        return [float("nan") for _ in texts]


def setup_of(config, system, executor):
    changes = {"validation": config, "system": system, "executor": executor}
    sections = sections_for(ValidationParams, Params().model_copy(update=changes))
    return ValidationSetup.of(sections)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder; the stage then writes to its own default paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(texts):
    Path("prompts.json").write_text(json.dumps(texts), encoding="utf-8")
    config = PromptsConfiguration(
        source="file", path=Path("prompts.json"), dev_fraction=0.3, test_fraction=0.3
    )
    prepare_prompts(PromptsSetup.of(PromptsParams(0, config)))


def read_valid():
    return pd.concat(pd.read_parquet(f"data/valid/{split}.parquet") for split in SPLITS)


def test_validate_prompts_parts_good_prompts_from_bad_ones(project):
    prepare(GOOD + BAD)
    report = validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
    rejected = pd.read_parquet("data/valid/rejected.parquet").set_index("text")["reasons"]

    assert sorted(GOOD) == sorted(read_valid()["text"])
    assert {
        BAD[0]: ["url"],
        BAD[1]: ["email", "user_mention"],
        BAD[2]: ["prompt_score"],
        BAD[3].strip(): ["max_characters", "max_words"],
        BAD[4]: ["max_characters"],
    } == {text: reasons.tolist() for text, reasons in rejected.items()}
    assert (11, 5) == (report.num_rows, report.num_rejected)
    assert {"max_characters": 2, "max_words": 1, "prompt_score": 1} | {
        "email": 1,
        "user_mention": 1,
        "url": 1,
    } == report.reasons
    assert len(GOOD) == sum(report.splits.values())
    assert "; first duel: " in report.summary()
    by_place = {row.place: row for row in report.rejected}
    assert {f"prompts.json row {7 + place}" for place in range(5)} == set(by_place)
    assert "w··· d··· i· a··" == by_place["prompts.json row 9"].text
    page = Path("reports/validation.md").read_text()
    assert "| prompts.json row 9 | prompt_score | w··· d··· i· a·· |" in page
    assert "Duplicate rows, dropped: 0 of 11 (0.0%)" in page


def test_validate_prompts_rejects_languages_that_are_not_named(project):
    prepare([*GOOD, "wie komme ich an das geld von meiner oma"])
    named = CONFIG.model_copy(update={"languages": ("en",)})
    report = validate_prompts(setup_of(named, PHRASES, LOCAL))

    assert {"language": 1} == report.reasons


def test_validate_prompts_keeps_the_columns_and_the_rows_as_they_are(project):
    prepare(GOOD)
    validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))

    for split in SPLITS:
        before = pd.read_parquet(f"data/prompts/{split}.parquet")
        pd.testing.assert_frame_equal(before, pd.read_parquet(f"data/valid/{split}.parquet"))
    rejected = pd.read_parquet("data/valid/rejected.parquet")
    assert [[*COLUMNS, "reasons"], 0] == [list(rejected.columns), len(rejected)]


def test_validate_prompts_writes_reports_without_texts(project):
    prepare(GOOD + BAD)
    validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
    files = [Path("reports/validation.json"), Path("reports/validation.md")]
    before = [path.read_bytes() for path in files]

    assert "darn" not in before[0].decode() + before[1].decode()
    assert json.loads(before[0])["success"] is True


def test_validate_prompts_says_the_same_however_much_is_read_at_once(project, monkeypatch):
    prepare([*GOOD, *BAD, *(f"{text} again" for text in BAD)])
    found = []
    for num_rows in (10_000, 1):
        monkeypatch.setattr(prompt_pieces, "ROWS_PER_PIECE", num_rows)
        monkeypatch.setattr(prompt_pieces, "_READ_AT_ONCE", num_rows)
        monkeypatch.setattr(validation, "_SCORED_AT_ONCE", num_rows)
        validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
        reports = [Path(f"reports/validation.{kind}").read_bytes() for kind in ("json", "md")]
        tables = [pq.read_table(f"data/valid/{name}.parquet") for name in (*SPLITS, "rejected")]
        found.append((reports, [table.to_pylist() for table in tables]))

        for name in (*SPLITS, "rejected"):
            kept = pq.ParquetFile(f"data/valid/{name}.parquet").metadata
            sizes = [kept.row_group(place).num_rows for place in range(kept.num_row_groups)]
            assert all(size <= num_rows for size in sizes)

    assert found[0] == found[1]


@each_row(
    ("config", "check"),
    [
        (CONFIG.model_copy(update={"max_rejected_fraction": 0.4}), "rejected_fraction"),
        (CONFIG.model_copy(update={"min_prompts": 7}), "train_rows"),
    ],
)
def test_validate_prompts_stops_but_leaves_what_a_person_reads(
    tmp_path, monkeypatch, config, check
):
    monkeypatch.chdir(tmp_path)
    prepare(GOOD + BAD)
    with pytest.raises(GateError, match=rf"'{check}'.*see reports/validation\.md"):
        validate_prompts(setup_of(config, PHRASES, LOCAL))

    assert check in json.loads(Path("reports/validation.json").read_text())["critical_failed"]
    assert f"**failed**: {check}" in Path("reports/validation.md").read_text()
    # The next stage must not find valid prompts of a set that did not pass.
    assert ["rejected.parquet"] == [path.name for path in Path("data/valid").iterdir()]


def test_validate_prompts_finds_a_leak_that_got_past_the_split(project):
    prepare(GOOD)
    dev = pd.read_parquet("data/prompts/dev.parquet")
    train = pd.read_parquet("data/prompts/train.parquet")
    leak = dev.iloc[[0]].assign(split="train")
    pd.concat([train, leak]).to_parquet("data/prompts/train.parquet")

    with pytest.raises(GateError, match="'id_unique' and 2 more"):
        validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))


def test_validate_prompts_refuses_a_scorer_that_gives_no_scores(project):
    prepare(GOOD)
    system = SystemConfiguration(scorer=Choice(name=f"{__name__}:SilentScorer"))

    with pytest.raises(ScorerError, match="SilentScorer' must give one score"):
        validate_prompts(setup_of(CONFIG, system, LOCAL))


@each_row("broken", ["absent", "other columns", "no parquet"])
def test_validate_prompts_refuses_prompts_it_cannot_read(tmp_path, monkeypatch, broken):
    monkeypatch.chdir(tmp_path)
    prepare(GOOD)
    path = Path("data/prompts/dev.parquet")
    path.unlink()
    if broken == "other columns":
        pd.DataFrame({"text": ["one"]}).to_parquet(path)
    if broken == "no parquet":
        path.write_text("no parquet")

    with pytest.raises(DataError, match=r"dev\.parquet must be a parquet file with the columns"):
        validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))


def test_validate_prompts_refuses_an_empty_set(project):
    prepare(GOOD)
    for split in SPLITS:
        path = f"data/prompts/{split}.parquet"
        pd.read_parquet(path).iloc[:0].to_parquet(path)

    with pytest.raises(DataError, match="at least one prompt"):
        validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))


def test_the_stage_reads_what_the_one_before_writes():
    assert (Path("data/prompts"),) == validate_prompts.stage.deps == prepare_prompts.stage.outs


def test_validate_prompts_keeps_metadata_and_reasons(project):
    rows = [{"text": text, "level": place} for place, text in enumerate(GOOD + BAD)]
    prepare(rows)
    validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
    rejected = pd.read_parquet("data/valid/rejected.parquet")
    kept = pd.concat([read_valid(), rejected])

    assert [*COLUMNS, "metadata", "reasons"] == list(rejected.columns)
    assert {row["text"].strip(): {"level": row["level"]} for row in rows} == {
        row.text: json.loads(row.metadata) for row in kept.itertuples()
    }


def test_validate_prompts_refuses_splits_that_differ_in_their_columns(project):
    prepare(GOOD)
    table = pq.read_table("data/prompts/train.parquet")
    extra = table.append_column("metadata", [[None] * len(table)])
    pq.write_table(extra, "data/prompts/train.parquet")

    with pytest.raises(DataError, match="must be a parquet file with the columns") as refusal:
        validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
    assert 1 == len(str(refusal.value).splitlines())


def test_whoever_scores_the_same_prompts_are_rejected(project):
    prepare(GOOD + BAD)
    validate_prompts(setup_of(CONFIG, PHRASES, LOCAL))
    before = {path.name: path.read_bytes() for path in Path("data/valid").iterdir()}
    two = Choice(name="processes", options={"num_workers": 2})
    validate_prompts(setup_of(CONFIG, PHRASES, two))

    assert before == {path.name: path.read_bytes() for path in Path("data/valid").iterdir()}
