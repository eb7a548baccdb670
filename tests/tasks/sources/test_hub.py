import pytest
from each_row import each_row
from huggingface_hub import constants

from astra_core.errors import ConfigurationError
from tasks.sources.hub import fetch_dataset, split_files

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache and no network, as the library's own switches make them."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_fetch_dataset_says_how_to_continue_when_offline(hub_cache):
    with pytest.raises(ConfigurationError, match=r"must be reachable or cached.*source: file"):
        fetch_dataset("owner/name", REVISION, split="train")


def test_fetch_dataset_uses_what_the_cache_holds_at_the_revision(hub_cache):
    snapshot = hub_cache / "datasets--owner--name" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / "train.jsonl").write_text('"hello"\n')

    assert [snapshot / "train.jsonl"] == fetch_dataset("owner/name", REVISION, split="train")


@each_row(
    ("names", "split", "chosen"),
    [
        (
            ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"],
            "train",
            "all",
        ),
        (["train.csv", "test.csv"], "test", ["test.csv"]),
        (["train.csv", "train.parquet"], "train", ["train.parquet"]),
        (["rows.jsonl", "more.jsonl", "dataset_infos.json"], "train", ["more.jsonl", "rows.jsonl"]),
        (["rows.jsonl", "test.jsonl"], "train", ["rows.jsonl"]),
        (["constrained.jsonl", "en/train/0.jsonl"], "train", ["en/train/0.jsonl"]),
    ],
)
def test_split_files_finds_the_files_that_name_the_split(tmp_path, names, split, chosen):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    expected = names if chosen == "all" else chosen

    assert [tmp_path / name for name in expected] == split_files(
        tmp_path, split=split, dataset="owner/name"
    )


def test_split_files_lists_what_there_is_when_no_file_fits(tmp_path):
    (tmp_path / "train.csv").touch()

    with pytest.raises(ConfigurationError, match=r"split 'test', got \['train.csv'\]"):
        split_files(tmp_path, split="test", dataset="owner/name")
