"""The tables of prompts: one row per prompt, those that were rejected with their reasons."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("train", "dev", "test")
COLUMNS = ("prompt_id", "text", "split", "source", "licence", "family")
REJECTED = "rejected"
REASONS = "reasons"


def prompt_schema(columns: Iterable[str] = COLUMNS) -> "pa.Schema":
    """Texts by name, those of a whole table by default."""
    import pyarrow as pa

    return pa.schema([(column, pa.string()) for column in columns])


def rejected_schema() -> "pa.Schema":
    """A prompt, and the row-level checks that it fails."""
    import pyarrow as pa

    return prompt_schema().append(pa.field(REASONS, pa.list_(pa.string())))


def rejected_rows(prompts: "pa.Table", reasons: Iterable[Iterable[str]]) -> "pa.Table":
    """The prompts, each with its reasons, as ``rejected.parquet`` holds them."""
    import pyarrow as pa

    listed = pa.array([list(each) for each in reasons], pa.list_(pa.string()))
    return prompts.append_column(REASONS, listed)
