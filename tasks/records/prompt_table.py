"""The tables of prompts: one row per prompt; rejected ones have their reasons.

What a user's file says of a prompt beside its text is in one column of JSON, ``metadata``: so each
value keeps its type, and a column may have the same name as one of ours. A source without further
columns gives a table without that column.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from astra_core.rollout.metadata import Metadata, Scalar

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("train", "dev", "test")
COLUMNS = ("prompt_id", "text", "split", "source", "licence", "family")
METADATA = "metadata"
REJECTED = "rejected"
REASONS = "reasons"


def prompt_schema(columns: Iterable[str] = COLUMNS) -> "pa.Schema":
    """The schema of these text columns; by default those of the whole table."""
    import pyarrow as pa

    return pa.schema([(column, pa.string()) for column in columns])


def rejected_schema(columns: Iterable[str] = COLUMNS) -> "pa.Schema":
    """The schema of a rejected prompt and the row-level checks that it fails."""
    import pyarrow as pa

    return prompt_schema(columns).append(pa.field(REASONS, pa.list_(pa.string())))


def rejected_rows(prompts: "pa.Table", reasons: Iterable[Iterable[str]]) -> "pa.Table":
    """The prompts, each with its reasons, as ``rejected.parquet`` holds them."""
    import pyarrow as pa

    listed = pa.array([list(each) for each in reasons], pa.list_(pa.string()))
    return prompts.append_column(REASONS, listed)


def spelled_metadata(metadata: Mapping[str, Scalar]) -> str | None:
    """The metadata as the column holds it; None without any."""
    return json.dumps(dict(metadata)) if metadata else None


def read_metadata(text: str | None) -> Metadata:
    """The metadata that ``spelled_metadata`` wrote.

    Raises ValueError if it is no JSON, DataError if it is no mapping of plain values.
    """
    return Metadata(json.loads(text) if text else None)
