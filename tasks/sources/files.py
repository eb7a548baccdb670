"""Prompt texts in files: json, jsonl, csv, txt and parquet, told apart by their suffix.

All but json are read as a stream, so a million rows take no more memory than a thousand. Whatever
is wrong with a file is one error that names the place and never quotes the text, which may offend.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.excerpt import excerpt, shortened
from astra_core.paths import found_at, is_file

# Rows of a parquet file held at a time.
_BATCH_ROWS = 8192
_WAY_OUT = "see prompts.text_column"


def read_texts(path: Path, *, text_column: str) -> Iterator[str | None]:
    """The prompts of one file in order; None where a row holds no text.

    Args:
        path: The suffix chooses the reader.
        text_column: The key or column that holds the prompt; bare strings need none.

    Raises:
        ConfigurationError: The file or the column does not exist, or the suffix has no reader.
        DataError: The file is broken, empty or not UTF-8.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        shown = excerpt(str(path))
        msg = f"prompts must come from one of {sorted(_READERS)}, got {shown}; convert the file"
        raise ConfigurationError(msg)
    if not is_file(path):
        msg = f"prompts must come from a file, got {found_at(path)}; check prompts.path"
        raise ConfigurationError(msg)
    if path.stat().st_size == 0:
        msg = f"{path} must hold prompts, got an empty file; check how it was written"
        raise DataError(msg)
    try:
        for number, text in enumerate(reader(path, text_column), start=1):
            _check_text(text, place=f"{path} row {number}")
            yield text
    except OSError as error:
        msg = f"{path} must be readable, got: {error.strerror}; check its permissions"
        raise DataError(msg) from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        msg = f"{path} must be UTF-8, got the byte 0x{byte:02x}; convert it, for example with iconv"
        raise DataError(msg) from None


def _check_text(text: str | None, *, place: str) -> None:
    """Returns if the row is text; UTF-16 without a mark reads as UTF-8 full of NUL."""
    if text is None:
        return
    if "\0" in text:
        msg = f"{place} must be text, got a NUL character; is the file UTF-16? Convert it"
        raise DataError(msg)
    try:
        text.encode()
    except UnicodeEncodeError:
        msg = f"{place} must hold whole characters, got half of one (a lone surrogate); correct it"
        raise DataError(msg) from None


def file_suffixes() -> tuple[str, ...]:
    """The suffixes that have a reader; the cheapest to read come first."""
    return (".parquet", ".jsonl", ".csv", ".json", ".txt")


def _read_json(path: Path, text_column: str) -> Iterator[str | None]:
    with path.open(encoding="utf-8-sig") as file:
        rows = _parsed(file.read(), place=str(path))
    if not isinstance(rows, list):
        msg = f"{path} must be a JSON list of prompts, got {type(rows).__name__}; wrap it in []"
        raise DataError(msg)
    for number, row in enumerate(rows, start=1):
        yield _text_of(row, text_column, place=f"{path} row {number}")


def _read_jsonl(path: Path, text_column: str) -> Iterator[str | None]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path} line {number}"
                yield _text_of(_parsed(line, place=place), text_column, place=place)


def _read_txt(path: Path, text_column: str) -> Iterator[str | None]:  # noqa: ARG001 - one shape for all readers
    with path.open(encoding="utf-8-sig") as file:
        yield from file


def _read_csv(path: Path, text_column: str) -> Iterator[str | None]:
    # The default of 131,072 characters would stop at a long prompt that validation is to judge.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            columns = list(rows.fieldnames or ())
            _require_column(text_column, columns, path=path)
            for row in rows:
                # csv would cut the text at an unquoted comma without a word.
                if None in row:
                    msg = (
                        f"{path} line {rows.line_num} must have {len(columns)} fields, "
                        "got more; put texts that hold commas in double quotes"
                    )
                    raise DataError(msg)
                yield row[text_column]
        except csv.Error as error:
            msg = f"{path} line {rows.reader.line_num} must be CSV, got: {error}; mend that row"
            raise DataError(msg) from None


def _read_parquet(path: Path, text_column: str) -> Iterator[str | None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _require_column(text_column, file.schema_arrow.names, path=path)
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[text_column]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield _text_of(value, text_column, place=f"{path} row {number}")
    except (pa.ArrowException, OSError, OverflowError) as error:
        reason = shortened(str(error).partition("\n")[0], limit=140)
        msg = f"{path} must be a parquet file, got: {reason}; write it again"
        raise DataError(msg) from None


def _parsed(text: str, *, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        msg = f"{place} must be JSON, got: {error.msg} ({where}); mend it"
        raise DataError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{place} must be JSON of texts, got {type(error).__name__}; mend it"
        raise DataError(msg) from None


def _text_of(row: Any, text_column: str, *, place: str) -> str | None:
    """The prompt in one parsed row: a string, null, or an object with the column."""
    if isinstance(row, dict):
        if text_column not in row:
            msg = f"{place} must have the key '{text_column}', got {_names(row)}; {_WAY_OUT}"
            raise ConfigurationError(msg)
        row = row[text_column]
    if row is None or isinstance(row, str):
        return row
    msg = f"{place} must hold text, got {type(row).__name__}; {_WAY_OUT}"
    raise DataError(msg)


def _require_column(text_column: str, columns: list[str], *, path: Path) -> None:
    if columns.count(text_column) > 1:
        msg = f"{path} must have one column '{text_column}', got several; rename the others"
        raise ConfigurationError(msg)
    if text_column not in columns:
        msg = f"{path} must have the column '{text_column}', got {_names(columns)}; {_WAY_OUT}"
        raise ConfigurationError(msg)


def _names(columns: Iterable[Any]) -> list[str]:
    """The columns that look like names: a file without a header would show its first prompt."""
    return [name for name in map(str, columns) if re.fullmatch(r"\w{1,30}", name)]


_READERS: dict[str, Callable[[Path, str], Iterator[str | None]]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
