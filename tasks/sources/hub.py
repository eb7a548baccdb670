"""A hub data set's files at a pinned revision, without the datasets library."""

import re
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten

SUFFIXES = (".parquet", ".jsonl", ".csv", ".json", ".txt")
"""Of files with rows; the cheapest to read come first."""
# Description files that many data sets have beside the rows.
_NO_ROWS = {"dataset_infos.json", "dataset_info.json", "config.json", "README.txt", "LICENSE.txt"}


def fetch_dataset(dataset: str, revision: str, *, split: str) -> list[Path]:
    """The local files that hold one split, in the order of their names.

    Files that the cache has at this revision are used offline. A file belongs to a split if its
    path contains the split's name as a separate word; a data set whose files name no split is all
    "train".

    Raises ConfigurationError if the hub cannot be reached, or has no such data set, revision or
    split.
    """
    from huggingface_hub import snapshot_download

    patterns = [f"*{suffix}" for suffix in SUFFIXES]
    try:
        folder = Path(
            snapshot_download(
                dataset, repo_type="dataset", revision=revision, allow_patterns=patterns
            )
        )
    except (OSError, ValueError) as error:
        reason = shorten(str(error).strip().partition("\n")[0], limit=140)
        msg = (
            f"data set '{dataset}' at {revision} must be reachable or cached, "
            f"got {type(error).__name__}: {reason}; go online once, or use prompts.source: file"
        )
        raise ConfigurationError(msg) from error
    return split_files(folder, split=split, dataset=dataset)


def split_files(folder: Path, *, split: str, dataset: str) -> list[Path]:
    """The files below ``folder`` that hold the split, all of one format."""
    names = sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and file.name not in _NO_ROWS
    )
    chosen = [name for name in names if _names_split(name, split)]
    if not chosen and split == "train":
        others = ("dev", "test", "valid", "validation", "eval")
        chosen = [name for name in names if not any(_names_split(name, word) for word in others)]
    if not chosen:
        msg = (
            f"data set '{dataset}' must have files of the split '{split}', "
            f"got {names[:10]}; see prompts.hub_split"
        )
        raise ConfigurationError(msg)
    # The same rows are often published in several formats; two of them would double the data.
    suffixes = {Path(name).suffix.lower() for name in chosen}
    first = next(suffix for suffix in SUFFIXES if suffix in suffixes)
    return [folder / name for name in chosen if name.lower().endswith(first)]


def _names_split(name: str, split: str) -> bool:
    return re.search(rf"(?:^|[/._-]){re.escape(split)}(?:[/._-]|$)", name) is not None
