"""Replies with people's labels, in a csv, tsv, jsonl or parquet file, for calibrating a judge.

A row has a reply and a label, and may have whatever else a judge reads: the probe, the conversation
before it, the seed prompt with its goal and category. An error names the line and quotes no text.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from astra_core.judge import Exchange
from astra_core.paths import found_at, is_file
from astra_core.rollout import Prompt
from tasks.sources.columns import shown_names
from tasks.sources.text_files import (
    json_lines,
    kind_of_file,
    parse_json,
    readable,
    readable_parquet,
    table_rows,
)

PlacedRows = Iterator[tuple[str, Mapping[str, Any]]]
"""Rows, each with the file and its line or number there."""
_BATCH_ROWS = 8192
_LABELS = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}
_SPEAKERS = ("user", "assistant")
# The fields of LabelColumns that name a column each.
COLUMN_NAMES = ("reply", "label", "probe", "prompt", "goal", "category", "conversation")


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """The names of a labelled file's columns.

    Attributes:
        reply: The target's reply; every file has it.
        label: 1 or true if a person found the reply bad; every file has it.
        conversation: The conversation before the probe: a list of ``role`` and ``text``.
        bad: The labels of bad replies; every other one is of a harmless reply. None: 1 and true
            are bad, 0 and false harmless.
    """

    reply: str = "reply"
    label: str = "label"
    probe: str = "probe"
    prompt: str = "prompt"
    goal: str = "goal"
    category: str = "category"
    conversation: str = "conversation"
    bad: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


SAME_NAMES = LabelColumns()


@dataclass(frozen=True, slots=True)
class LabelledReply:
    """One row.

    Attributes:
        place: Its place in the file, such as ``line 12``.
        groups: The groups to which it belongs, such as ``model: a``, by ``LabelColumns.by``.
    """

    place: str
    exchange: Exchange
    is_bad: bool
    groups: tuple[str, ...] = ()


def read_labelled(path: Path, columns: LabelColumns = SAME_NAMES) -> list[LabelledReply]:
    """The rows of a labelled file, in order.

    ``columns``: their names; a column with a name other than the default must exist.

    Raises ConfigurationError if there is no such file or column, the suffix has no reader, or no
    row has a label that was named as bad; DataError if the file is broken or empty, or a row has no
    reply or no label.
    """
    reader = _READERS.get(kind_of_file(path))
    if reader is None:
        msg = f"FILE must be one of {sorted(_READERS)}, got {excerpt(str(path))}; convert it"
        raise ConfigurationError(msg)
    if not is_file(path):
        msg = f"FILE must name a file of labelled replies, got {found_at(path)}; check the path"
        raise ConfigurationError(msg)
    with readable(path):
        rows, labels = [], set()
        for at, row in reader(path, columns):
            rows.append(_labelled_reply(row, columns, at=at, place=at.removeprefix(f"{path} ")))
            labels.add(_as_text(row[columns.label]))
    if not rows:
        msg = f"{path} must hold labelled replies, got no row; check how it was written"
        raise DataError(msg)
    unseen = [label for label in columns.bad if label not in labels]
    if unseen:
        msg = (
            f"--bad must be labels in '{columns.label}' of {path}, got {excerpt(unseen[0])}, which "
            f"no row has; labels there are {shown_names(sorted(labels)[:6])}"
        )
        raise ConfigurationError(msg)
    return rows


def _labelled_reply(
    row: Mapping[str, Any], columns: LabelColumns, *, at: str, place: str
) -> LabelledReply:
    for field in COLUMN_NAMES:
        name = getattr(columns, field)
        # A column that the user named must exist.
        is_needed = field in {"reply", "label"} or name != getattr(SAME_NAMES, field)
        if is_needed and name not in row:
            msg = (
                f"{at} must have the column '{name}', got {shown_names(row)}; "
                f"name it with --column {field}=..."
            )
            raise ConfigurationError(msg)
    for name in columns.by:
        if name not in row:
            msg = f"{at} must have the column '{name}' of --by, got {shown_names(row)}"
            raise ConfigurationError(msg)
    told = {name: _text(row, getattr(columns, name), at) for name in ("goal", "category")}
    prompt = Prompt.of(
        _text(row, columns.prompt, at) or "",
        {name: value for name, value in told.items() if value is not None},
    )
    reply = _text(row, columns.reply, at)
    if reply is None:
        msg = f"{at} must hold a reply in '{columns.reply}', got nothing; label what was said"
        raise DataError(msg)
    messages = _messages(row.get(columns.conversation), at=f"{at}, '{columns.conversation}',")
    exchange = Exchange(Conversation(prompt, messages), _text(row, columns.probe, at) or "", reply)
    groups = tuple(f"{name}: {_text(row, name, at) or 'none'}" for name in columns.by)
    return LabelledReply(place, exchange, _label(row[columns.label], columns, at), groups)


def _text(row: Mapping[str, Any], name: str, at: str) -> str | None:
    value = row.get(name)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    # Names of categories may be numbers.
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"{at} must hold text in '{name}', got {type(value).__name__}; write it as text"
    raise DataError(msg)


def _label(value: Any, columns: LabelColumns, at: str) -> bool:
    told = _as_text(value)
    if columns.bad and told:
        return told in columns.bad
    found = _LABELS.get(told.lower())
    if found is None:
        got = excerpt(value, limit=24) if told else "nothing"
        msg = (
            f"{at} must hold 0, 1, true or false in '{columns.label}', got {got}; label it, leave "
            "it out, or name the labels of bad replies by --bad"
        )
        raise DataError(msg)
    return found


def _as_text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _messages(value: Any, *, at: str) -> tuple[Message, ...]:
    """A list of messages, or such a list as JSON; ``content`` may be used for ``text``."""
    if value is None or value == "":
        return ()
    found = parse_json(value, place=at) if isinstance(value, str) else value
    is_list = isinstance(found, list)
    if not is_list or not all(map(_is_message, found)):
        msg = (
            f"{at} must be a list of messages, each with role (user or assistant) and text, "
            f"got {'others' if is_list else type(found).__name__}; write it so"
        )
        raise DataError(msg)
    return tuple(Message(each["role"], _message_text(each)) for each in found)


def _is_message(each: Any) -> bool:
    if not isinstance(each, Mapping) or each.get("role") not in _SPEAKERS:
        return False
    return isinstance(_message_text(each), str)


def _message_text(each: Mapping[str, Any]) -> Any:
    # A table has both columns if any message has both.
    text = each.get("text")
    return each.get("content") if text is None else text


def _read_jsonl(path: Path, _: LabelColumns) -> PlacedRows:
    for at, row in json_lines(path):
        if not isinstance(row, dict):
            msg = f"{at} must be a JSON object, got {type(row).__name__}; name its columns"
            raise DataError(msg)
        yield at, row


def _read_parquet(path: Path, _: LabelColumns) -> PlacedRows:
    import pyarrow.parquet as pq

    with readable_parquet(path), pq.ParquetFile(path) as file:
        batches = file.iter_batches(batch_size=_BATCH_ROWS)
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        yield from ((f"{path} row {number}", row) for number, row in enumerate(rows, start=1))


_READERS: dict[str, Callable[[Path, LabelColumns], PlacedRows]] = {
    ".csv": lambda path, columns: table_rows(path, {columns.reply}),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
