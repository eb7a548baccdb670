"""The rows of a file of prompts with the numbers under which a person's editor shows them."""

import csv
from collections.abc import Iterator
from pathlib import Path

from tasks.sources.columns import Columns
from tasks.sources.files import read_rows

BY_ROW = (".json", ".parquet")
"""Suffixes of files whose rows are no lines; the first row is 1."""


def numbered_rows(path: Path, columns: Columns) -> Iterator[tuple[int, str | None]]:
    """Number and text of each row in order; a row over several lines has that of its first.

    Raises:
        ConfigurationError: As ``read_rows`` has it.
        DataError: The same.
    """
    rows = read_rows(path, columns)
    numbers = _numbers(path)
    for row in rows:
        yield next(numbers), row.text


def _numbers(path: Path) -> Iterator[int]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        yield from _csv_lines(path)
    elif suffix in BY_ROW:
        yield from _counted()
    else:
        # As the readers do: jsonl skips empty lines, txt has a row for each.
        with path.open(encoding="utf-8-sig", newline="\n" if suffix == ".jsonl" else None) as file:
            for number, line in enumerate(file, start=1):
                if suffix == ".txt" or line.strip():
                    yield number


def _csv_lines(path: Path) -> Iterator[int]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        next(rows, None)
        first = rows.line_num + 1
        for row in rows:
            if row:
                yield first
            first = rows.line_num + 1


def _counted() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number
