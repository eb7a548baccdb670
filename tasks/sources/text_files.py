"""Text files as people write them: packed by gzip, with marks, other delimiters, endless lines."""

import csv
import gzip
import json
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from astra_core.errors import DataError
from astra_core.errors.exception_text import shorten
from astra_core.rollout.metadata import Scalar

# Characters of a line, or of a file that is read as a whole: beyond it something else is meant.
LONGEST_LINE = 1 << 24
LONGEST_TEXT = 1 << 29
_DELIMITERS = (",", ";", "\t")
OTHER_SUFFIXES = {".tsv": ".csv", ".yml": ".yaml"}
_ORDER_MARK = "\ufeff"


def kind_of_file(path: Path) -> str:
    """The suffix that chooses the reader: ``.csv`` of ``a.tsv``, ``.jsonl`` of ``a.jsonl.gz``."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = name.suffix.lower()
    return OTHER_SUFFIXES.get(suffix, suffix)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Within it a file that cannot be read is one line.

    Raises DataError if it is no UTF-8, is packed and damaged, or the system refuses it.
    """
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        msg = f"{path} must be packed by gzip, got {type(error).__name__}; pack it again"
        raise DataError(msg) from None
    except OSError as error:
        msg = f"{path} must be readable, got: {error.strerror}; check its permissions"
        raise DataError(msg) from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        msg = f"{path} must be UTF-8, got the byte 0x{byte:02x}; convert it, for example with iconv"
        raise DataError(msg) from None


@contextmanager
def readable_parquet(path: Path) -> Iterator[None]:
    """Within it a damaged parquet file is one line. Raises DataError."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, OverflowError) as error:
        if getattr(error, "errno", None) is not None:  # the system's refusal, not a damaged page
            raise
        reason = shorten(str(error).partition("\n")[0], limit=140)
        msg = f"{path} must be a parquet file, got: {reason}; write it again"
        raise DataError(msg) from None


def whole_text(path: Path) -> str:
    """The text of a file that is no longer than ``LONGEST_TEXT``."""
    with _open(path, newline=None) as file:
        text = file.read(LONGEST_TEXT + 1)
    if len(text) > LONGEST_TEXT:
        msg = f"{path} must be at most {LONGEST_TEXT >> 20} Mi characters, got more; write jsonl"
        raise DataError(msg)
    return text


def lines_of(path: Path, *, newline: str | None = None) -> Iterator[str]:
    """The lines with their ends, without the byte-order marks that ``cat`` leaves between files.

    Raises DataError if a line is longer than ``LONGEST_LINE``.
    """
    with _open(path, newline=newline) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                msg = (
                    f"{path} line {number} must have at most {LONGEST_LINE >> 20} Mi characters, "
                    "got more; is it the right file?"
                )
                raise DataError(msg)
            yield line.removeprefix(_ORDER_MARK)


def csv_rows(path: Path, wanted: Collection[str]) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows of a table, each with its line. Raises DataError if it is no CSV."""
    # The default of 131,072 characters would fail on a long prompt, which validation should judge.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    rows = csv.reader(lines_of(path, newline=""), strict=True, delimiter=delimiter(path, wanted))
    try:
        first = 1
        for row in rows:
            # A quoted text may take several lines.
            yield first, row
            first = rows.line_num + 1
    except csv.Error as error:
        msg = f"{path} line {rows.line_num} must be CSV, got: {error}; correct that row"
        raise DataError(msg) from None


def delimiter(path: Path, wanted: Collection[str]) -> str:
    """The delimiter by which the first line has a wanted column; else that of most fields."""
    first = next(lines_of(path), "").rstrip("\r\n")
    for own in _DELIMITERS:
        if set(wanted) & set(next(csv.reader([first], delimiter=own), [])):
            return own
    return max(_DELIMITERS, key=first.count)


def table_rows(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The rows by column, each with its place; a missing field of a short row is None."""
    fields = csv_rows(path, wanted)
    _, header = next(fields, (0, []))
    for line, row in fields:
        # Otherwise the text would be cut at an unquoted comma without notice.
        if len(row) > len(header):
            msg = f"{path} line {line} must have {len(header)} fields, got {len(row)}; "
            raise DataError(msg + "put texts that hold commas in double quotes")
        if row:
            yield f"{path} line {line}", dict(zip_longest(header, row))


def parse_json(text: str, *, place: str) -> Any:
    """The value of a JSON text. Raises DataError, which names the place and quotes nothing."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        msg = f"{place} must be JSON, got: {error.msg} ({where}); correct it"
        raise DataError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{place} must be JSON of texts, got {type(error).__name__}; correct it"
        raise DataError(msg) from None


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The values of a file with one in each line, each with its place; blank lines have none."""
    for number, line in enumerate(lines_of(path, newline="\n"), start=1):
        if line.strip():
            place = f"{path} line {number}"
            yield place, parse_json(line, place=place)


def find_repeated(names: Collection[str]) -> set[str]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def _open(path: Path, *, newline: str | None) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")

Kind = type[int] | type[float] | type[str]


def column_kinds(rows: Iterable[Mapping[str, str | None]], names: Sequence[str]) -> dict[str, Kind]:
    """The type of each of these columns over all rows; text if every cell is empty."""
    filled: set[str] = set()
    whole, number = set(names), set(names)
    for row in rows:
        for name in number | whole:
            cell = row[name]
            if not cell:
                continue
            filled.add(name)
            if not _WHOLE.fullmatch(cell):
                whole.discard(name)
            if not (_NUMBER.fullmatch(cell) and math.isfinite(float(cell))):
                number.discard(name)
    kinds: dict[str, Kind] = dict.fromkeys(names, str)
    kinds |= dict.fromkeys(number & filled, float)
    kinds |= dict.fromkeys(whole & filled, int)
    return kinds


def cell_value(cell: str | None, kind: Kind) -> Scalar:
    """The cell's value by its column's type; None for a cell that a short row lacks."""
    if cell is None or kind is str:
        return cell
    return kind(cell) if cell else None
