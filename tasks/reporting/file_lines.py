"""The rows of a file of prompts with their line numbers in an editor."""

from collections.abc import Iterator
from pathlib import Path

from tasks.sources.columns import Columns
from tasks.sources.files import FileRow, read_rows

BY_ROW = (".json", ".parquet", ".yaml")
"""Suffixes of files whose rows are not lines; the first row is 1."""


def numbered_rows(path: Path, columns: Columns) -> Iterator[tuple[int, FileRow]]:
    """Number and row in the order of the file; one over several lines has the first one's number.

    Raises:
        ConfigurationError: As in ``read_rows``.
        DataError: As in ``read_rows``.
    """
    for row in read_rows(path, columns):
        # Such as ``line 3`` or ``row 3``.
        yield int(row.place.rpartition(" ")[2]), row
