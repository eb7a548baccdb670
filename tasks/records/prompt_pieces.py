"""Reads a folder of prompts in pieces of bounded size, whatever the size of its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.errors import DataError
from astra_core.errors.exception_text import shorten
from tasks.records.prompt_table import COLUMNS, METADATA, SPLITS, prompt_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows of a file in memory at a time.
_READ_AT_ONCE = 8192
# Rows in one run of the row suite, which takes at least a tenth of a second, and in one row group.
ROWS_PER_PIECE = 65536


def prompt_pieces(folder: Path) -> Iterator["pa.Table"]:
    """The rows of all splits in the order of the prompts stage, a bounded number at a time.

    Raises DataError if a file is missing, is no parquet file or lacks a column.
    """
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    schema = prompt_schema(columns_in(folder))
    paths = [folder / f"{split}.parquet" for split in SPLITS]
    for batch in chain.from_iterable(_batches(path, schema) for path in paths):
        batches.append(batch)
        if sum(batch.num_rows for batch in batches) >= ROWS_PER_PIECE:
            yield pa.Table.from_batches(batches)
            batches.clear()
    if any(batch.num_rows for batch in batches):
        yield pa.Table.from_batches(batches)


def _batches(path: Path, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    with _open(path) as file:
        for batch in file.iter_batches(batch_size=_READ_AT_ONCE):
            yield batch.select(schema.names).cast(schema)


def columns_in(folder: Path) -> tuple[str, ...]:
    """The columns of each split; the stage before gives all splits the same."""
    with _open(folder / f"{SPLITS[0]}.parquet") as file:
        return (*COLUMNS, METADATA) if METADATA in file.schema_arrow.names else COLUMNS


@contextmanager
def _open(path: Path) -> Iterator["pq.ParquetFile"]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (KeyError, OSError, pa.ArrowException) as error:
        reason = shorten(str(error).partition("\n")[0], limit=140)
        msg = (
            f"{path} must be a parquet file with the columns {list(COLUMNS)}, got: {reason}; "
            "run the stage 'prompts' again"
        )
        raise DataError(msg) from None


def num_rows_in(path: Path) -> int:
    """The number of prompts in a file, without reading them."""
    with _open(path) as file:
        return int(file.metadata.num_rows)
