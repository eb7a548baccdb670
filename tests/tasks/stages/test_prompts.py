import hashlib
import json
import random
from pathlib import Path

import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError
from tasks.params.prompts import PromptsConfiguration
from tasks.records.intake import read_intake, read_places
from tasks.stages.prompts import (
    COLUMNS,
    SPLITS,
    PromptsFiles,
    PromptsParams,
    PromptsSetup,
    prepare_prompts,
)

WORDS = [f"word{number}" for number in range(400)]


def random_texts(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=20)) for _ in range(count)]


def write_list(texts, path):
    path.write_text(json.dumps(texts), encoding="utf-8")
    return path


def prepare(texts, folder, *, seed=0, dev_texts=None):
    dev_path = None if dev_texts is None else write_list(dev_texts, folder / "held_out.json")
    path = write_list(texts, folder / "prompts.json")
    config = PromptsConfiguration(source="file", path=path, dev_path=dev_path)
    summary = prepare_prompts(
        PromptsSetup.of(PromptsParams(seed, config)), PromptsFiles(folder / "prompts")
    )
    return summary, read_splits(folder / "prompts")


def read_splits(folder):
    frames = {split: pd.read_parquet(folder / f"{split}.parquet") for split in SPLITS}
    for split, frame in frames.items():
        assert {split} >= set(frame["split"])
    return pd.concat(frames.values(), ignore_index=True)


def test_prepare_prompts_writes_ids_that_are_hashes_of_the_texts(tmp_path):
    _, frame = prepare(["Hello there"], tmp_path)

    assert list(COLUMNS) == list(frame.columns)
    row = frame.iloc[0]
    assert hashlib.sha256(b"Hello there").hexdigest()[:16] == row["prompt_id"]
    assert ("Hello there", "prompts.json", "unknown") == (
        row["text"],
        row["source"],
        row["licence"],
    )
    assert row["prompt_id"] == row["family"]


def test_prepare_prompts_leaves_only_the_three_splits(tmp_path):
    prepare(["one", "two"], tmp_path)

    names = sorted(path.name for path in (tmp_path / "prompts").iterdir())
    assert [
        "dev.parquet",
        "intake.json",
        "places.parquet",
        "test.parquet",
        "train.parquet",
    ] == names


def test_prepare_prompts_counts_the_leaks_that_it_resolves(tmp_path):
    texts = random_texts(40)
    near = [f"{text} again" for text in texts]
    summary, _ = prepare([*texts, *near, texts[0], texts[0]], tmp_path, dev_texts=[texts[1]])
    figures = read_intake(tmp_path / "prompts")

    # Of the dev file's text: one exact copy and one near one.
    assert (3, 1, 1) == tuple(
        figures[name] for name in ("num_duplicates", "num_dev_duplicates", "num_near_dev")
    )
    assert 3 / 83 == figures["duplicate_fraction"]
    assert 0 < summary.num_kept_together == figures["num_kept_together"] < 40


def test_prepare_prompts_knows_the_place_of_each_row(tmp_path):
    _, frame = prepare(["one", "two"], tmp_path)
    ids = {row["text"]: row["prompt_id"] for row in frame.to_dict("records")}

    assert {ids["two"]: "prompts.json row 2"} == read_places(tmp_path / "prompts", [ids["two"]])


def test_prepare_prompts_drops_and_counts_blanks_and_duplicates(tmp_path):
    summary, frame = prepare(["one", " one\n", "", None, " \t", "two"], tmp_path)

    assert ["one", "two"] == sorted(frame["text"])
    assert (6, 3, 1) == (summary.num_read, summary.num_blank, summary.num_duplicates)
    assert "6 rows read" in summary.summary()


def test_prepare_prompts_gives_the_same_bytes_for_the_same_seed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    texts = random_texts(50)
    prepare(texts, tmp_path / "a")
    prepare(texts, tmp_path / "b")

    for split in SPLITS:
        name = f"prompts/{split}.parquet"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_prepare_prompts_splits_by_the_fractions(tmp_path):
    summary, _ = prepare(random_texts(2000), tmp_path)

    # Binomial(2000, 0.1): 200 with a standard deviation of 13.4; five of them are never left.
    assert 200 == pytest.approx(summary.splits["dev"], abs=67)
    assert 600 == pytest.approx(summary.splits["test"], abs=103)
    assert "30% for the test and duels (prompts.test_fraction)" in summary.summary()


def test_prepare_prompts_keeps_every_split_when_rows_are_appended(tmp_path):
    texts = random_texts(300)
    _, before = prepare(texts, tmp_path)
    _, after = prepare(texts + random_texts(300, seed=1) + [texts[0] + " more"], tmp_path)

    kept = after.set_index("prompt_id")["split"].loc[before["prompt_id"]]
    assert before["split"].tolist() == kept.tolist()


def test_prepare_prompts_splits_otherwise_for_another_seed(tmp_path):
    texts = random_texts(300)
    _, one = prepare(texts, tmp_path, seed=0)
    _, other = prepare(texts, tmp_path, seed=1)

    assert one.set_index("text")["split"].to_dict() != other.set_index("text")["split"].to_dict()


def test_prepare_prompts_puts_near_duplicates_into_one_split(tmp_path):
    texts = random_texts(150)
    _, frame = prepare(texts + [text.upper() + "!" for text in texts], tmp_path)

    assert {2} == set(frame.groupby("family").size())
    assert {1} == set(frame.groupby("family")["split"].nunique())


def test_prepare_prompts_takes_dev_from_its_own_file(tmp_path):
    texts, held_out = random_texts(100), random_texts(10, seed=1)
    near = held_out[0] + " indeed"
    summary, frame = prepare([*texts, held_out[1], near], tmp_path, dev_texts=held_out)

    dev = frame[frame["split"] == "dev"]
    assert sorted(held_out) == sorted(dev["text"])
    assert {"held_out.json"} == set(dev["source"])
    # The exact copy is a duplicate; the near one would leak what dev asks into training.
    assert (1, 1) == (summary.num_duplicates, summary.num_near_dev)
    assert near not in set(frame["text"])
    assert "1 too close to the dev file" in summary.summary()


def test_prepare_prompts_keeps_the_test_split_when_a_dev_file_is_added(tmp_path):
    texts = random_texts(200)
    _, before = prepare(texts, tmp_path)
    _, after = prepare(texts, tmp_path, dev_texts=random_texts(5, seed=1))

    def test_texts(frame):
        return set(frame.loc[frame["split"] == "test", "text"])

    assert test_texts(before) == test_texts(after)


def test_prepare_prompts_makes_builtin_openers_with_their_families(tmp_path):
    params = PromptsParams(0, PromptsConfiguration(num_builtin=300))
    summary = prepare_prompts(PromptsSetup.of(params), PromptsFiles(tmp_path / "prompts"))
    frame = read_splits(tmp_path / "prompts")

    assert 300 == len(frame) == sum(summary.splits.values())
    assert {("builtin", "MIT")} == set(zip(frame["source"], frame["licence"], strict=True))
    assert frame["family"].nunique() == summary.num_families < 300
    assert {1} == set(frame.groupby("family")["split"].nunique())


def test_prepare_prompts_reads_a_hub_data_set_from_the_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    revision = "0" * 40
    snapshot = tmp_path / "datasets--owner--name" / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / "train.jsonl").write_text('{"text": "hello", "category": "fraud"}\n')
    config = PromptsConfiguration(source="hub", dataset="owner/name", revision=revision)
    prepare_prompts(PromptsSetup.of(PromptsParams(0, config)), PromptsFiles(tmp_path / "prompts"))

    (row,) = read_splits(tmp_path / "prompts").to_dict("records")
    assert f"owner/name@{revision}" == row["source"]
    assert {"category": "fraud"} == json.loads(row["metadata"])


def test_prepare_prompts_refuses_a_source_without_any_text(tmp_path):
    with pytest.raises(DataError, match="at least one prompt, got 2 rows and none with text"):
        prepare(["", " "], tmp_path)
    assert not (tmp_path / "prompts").exists()


def test_prepare_prompts_leaves_the_old_prompts_when_a_new_source_is_broken(tmp_path):
    _, before = prepare(["one", "two"], tmp_path)
    with pytest.raises(DataError, match="row 2"):
        prepare(["three", 4], tmp_path)

    pd.testing.assert_frame_equal(before, read_splits(tmp_path / "prompts"))


@each_row(
    "record",
    [
        {"source": "file"},
        {"source": "hub", "dataset": "owner/name"},
        {"source": "hub", "dataset": "owner/name", "revision": "main"},
        {"source": "builtin", "dev_path": "dev.json"},
        {"source": "builtin", "metadata_columns": ["level"]},
        {"source": "file", "path": "p.json", "metadata_columns": ["text"]},
        {"source": "file", "path": "p.json", "metadata_columns": "some"},
    ],
)
def test_prompts_configuration_refuses_a_source_that_is_not_whole(record):
    with pytest.raises(ConfigurationError, match="prompts"):
        PromptsConfiguration.read(record, where="prompts")


def test_the_stage_writes_where_the_next_one_reads():
    assert (Path("data/prompts"),) == prepare_prompts.stage.outs


def prepare_rows(rows, folder, **section):
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = PromptsConfiguration(source="file", path=path, **section)
    summary = prepare_prompts(
        PromptsSetup.of(PromptsParams(0, config)), PromptsFiles(folder / "prompts")
    )
    frame = read_splits(folder / "prompts")
    return summary, frame.set_index("text")


def test_prepare_prompts_keeps_the_columns_of_a_file_in_every_split(tmp_path):
    rows = [{"text": text, "level": place} for place, text in enumerate(random_texts(200))]
    _, frame = prepare_rows(rows, tmp_path)

    assert 3 == frame["split"].nunique()
    for row in rows:
        assert {"level": row["level"]} == json.loads(frame.loc[row["text"], "metadata"])


def test_prepare_prompts_writes_no_column_of_metadata_where_there_is_none(tmp_path):
    rows = [{"text": "one", "level": 1}, {"text": "two", "level": 2}]
    _, frame = prepare_rows(rows, tmp_path, metadata_columns=())

    assert "metadata" not in frame
    _, plain = prepare(["one", "two"], tmp_path)
    assert list(COLUMNS) == list(plain.columns)


def test_prepare_prompts_keeps_the_metadata_of_the_first_of_equal_texts(tmp_path):
    rows = [
        {"text": "one", "level": 1},
        {"text": " one", "level": 1},
        {"text": "one ", "level": 2},
        {"text": "one"},
    ]
    summary, frame = prepare_rows(rows, tmp_path)

    assert {"level": 1} == json.loads(frame.loc["one", "metadata"])
    assert (3, 2) == (summary.num_duplicates, summary.num_differing)
    assert "3 duplicate (2 of other metadata than the first of its text)" in summary.summary()


def test_prepare_prompts_says_which_columns_it_left_out(tmp_path):
    summary, frame = prepare_rows([{"text": "one", "tags": ["a"], "level": 1}], tmp_path)

    assert {"level": 1} == json.loads(frame.loc["one", "metadata"])
    assert summary.summary().endswith("; left out columns: tags (list)")


def test_metadata_moves_no_prompt_to_another_split(tmp_path):
    texts = random_texts(100)
    _, plain = prepare(texts, tmp_path)
    _, rich = prepare_rows([{"text": text, "level": 1} for text in texts], tmp_path)

    expected = plain.set_index("text")["split"].to_dict()
    assert expected == rich["split"].to_dict()
