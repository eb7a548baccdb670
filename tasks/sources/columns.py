"""Which columns of a file are kept with a prompt, and what may be in them.

With ``all``, columns with values that are not plain are left out and listed in the stage's line,
since a file may have columns that nobody needs. A column that is named must be in every row and
hold plain values.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import shorten
from astra_core.redaction import mask
from astra_core.rollout.metadata import Scalar, problem_of
from tasks.sources.text_files import find_repeated

Wanted = Literal["all"] | tuple[str, ...]
KEY = "prompts.metadata_columns"
USUAL_NAMES = ("text", "prompt", "goal", "behavior", "question", "instruction", "request", "query")
"""Names that published sets of prompts give to the column, in the order in which they are tried."""

# The limit of one value: a longer text would be a document, and every turn of a rollout repeats it.
MAX_CHARACTERS = 20_000
# That are kept: every turn of a rollout repeats them too.
MAX_COLUMNS = 1_000
# Names that pandas gives to the index of a table.
_INDEX = re.compile(r"__index_level_\d+__|")
_MAX_SHOWN = 5
_NAME = re.compile(r"\w{1,30}")


class MissingColumnError(ConfigurationError):
    """The column of the prompt is not there; ``columns`` are those that are."""

    def __init__(self, message: str, columns: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)


@dataclass(slots=True)
class Columns:
    """The chosen columns of one source, and those left out.

    Attributes:
        text: The column of the prompt itself, which is kept as its text only.
        wanted: The names of columns to keep, or ``all``.
        left_out: Columns with at least one value that was not kept, each with the first reason.
        told: What a column is kept as, by column, such as ``{"Behavior": "goal"}``. Each must
            exist, and replaces a column that has the new name.
    """

    text: str
    wanted: Wanted = "all"
    left_out: dict[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def text_of(self, columns: Iterable[str]) -> str:
        """The column that holds the prompt: that of the goal if there is no text column."""
        goal = next((column for column, name in self.told.items() if name == "goal"), None)
        return self.text if goal is None or self.text in columns else goal

    @property
    def of_prompt(self) -> set[str]:
        """The columns that may hold the prompt."""
        return {self.text, *(column for column, name in self.told.items() if name == "goal")}

    def of_header(self, columns: Sequence[str], *, place: str) -> list[str]:
        """The columns of a table that are kept, in their order.

        Raises ConfigurationError if a named column is missing, several have its name, or there are
        too many.
        """
        for name in self._required:
            count = columns.count(name)
            if count != 1:
                got = "several" if count else shown_names(columns)
                msg = f"{place} must have one column '{name}', got {got}; see {self._key(name)}"
                raise ConfigurationError(msg)
        several = find_repeated(columns)
        for name in sorted(several - {self.text}):
            self.left_out.setdefault(name, "several columns")
        return self._few(
            [name for name in columns if self._is_wanted(name) and name not in several], place
        )

    def pick(self, row: Mapping[str, Any], *, place: str) -> dict[str, Scalar]:
        """The values of one row that are kept.

        Raises ConfigurationError if the row lacks a named column, or has too many; DataError if a
        named column has a value that is not plain.
        """
        missing = [name for name in self._required if name not in row]
        if missing:
            got, key = shown_names(row), self._key(missing[0])
            msg = f"{place} must have the key '{missing[0]}', got {got}; see {key}"
            raise ConfigurationError(msg)
        kept: dict[str, Scalar] = {}
        for name in self._few([*filter(self._is_wanted, row)], place):
            value = _missing_as_null(row[name])
            if self.told.get(name, name) == "category" and _are_names(value):
                value = ", ".join(value)
            problem = _problem(value) or problem_of(name)
            if not problem:
                kept[self.told.get(name, name)] = value
            elif self.wanted == "all" and name not in self.told:
                self.left_out.setdefault(name, problem)
            else:
                msg = (
                    f"{place} must hold text, a number, true, false or null in '{name}', "
                    f"got {problem}; leave it out of {self._key(name)}"
                )
                raise DataError(msg)
        return kept

    def summary(self) -> str:
        """The columns left out, for a person; empty if none were."""
        if not self.left_out:
            return ""
        names = [name for name in self.left_out if _NAME.fullmatch(name)]
        unnamed = len(self.left_out) - len(names)
        told = [f"{name} ({self.left_out[name]})" for name in names[:_MAX_SHOWN]]
        more = unnamed + len(names[_MAX_SHOWN:])
        return ", ".join([*told, *([f"{more} more"] if more else [])])

    def _few(self, names: list[str], place: str) -> list[str]:
        if len(names) > MAX_COLUMNS:
            msg = (
                f"{place} must have at most {MAX_COLUMNS} columns that are kept, got {len(names)}; "
                f"name those that you need as {KEY}"
            )
            raise ConfigurationError(msg)
        return names

    @property
    def _required(self) -> list[str]:
        """The named columns."""
        wanted = () if self.wanted == "all" else self.wanted
        return list(dict.fromkeys([*wanted, *self.told]))

    def _key(self, name: str) -> str:
        """The key of params.yaml that names a column."""
        own = self.told.get(name)
        return KEY if own is None else f"prompts.{own.partition('_')[0]}_column"

    def _is_wanted(self, name: str) -> bool:
        if name in self.told:
            return True
        if name == self.text or _INDEX.fullmatch(name) or name in self.told.values():
            return False
        return self.wanted == "all" or name in self.wanted


def shown_names(columns: Iterable[Any]) -> list[str]:
    """The columns; masked if unlike a name, as the first prompt of a file without a header is."""
    return [
        name if _NAME.fullmatch(name) else shorten(mask(name), limit=30)
        for name in map(str, columns)
    ]


def _missing_as_null(value: Any) -> Any:
    """The value, with NaN as None: tables of numbers write a missing value as NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _problem(value: Any) -> str:
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        return f"a text of {len(value):,} characters (at most {MAX_CHARACTERS:,})"
    return problem_of(value)


def results_in(record: Any) -> Any:
    """The results of promptfoo's evaluation; anything else as it is."""
    found = record.get("results") if isinstance(record, Mapping) else None
    rows = found.get("results") if isinstance(found, Mapping) else None
    return rows if isinstance(rows, list) else record


def plain_row(row: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """A hit or result as a row: prompt as text, goal and category; others as they are."""
    prompt = row.get("prompt")
    if not isinstance(prompt, Mapping):
        return row
    if "raw" in prompt:
        told = row.get("metadata")
        about = told if isinstance(told, Mapping) else {}
        asked = row.get("vars")
        own = asked.get("prompt") if isinstance(asked, Mapping) else None
        said = own if isinstance(own, str) else prompt["raw"]
        found = {text: said, "category": about.get("pluginId") or about.get("category")}
    else:
        found = {text: _last_of(prompt), "category": row.get("probe"), "goal": row.get("goal")}
    return {name: value for name, value in found.items() if name == text or value}


def _last_of(prompt: Mapping[str, Any]) -> Any:
    """The last words of the user in a conversation of garak; those of a message of older ones."""
    turns = prompt.get("turns")
    said = [
        turn.get("content")
        for turn in (turns if isinstance(turns, list) else [])
        if isinstance(turn, Mapping) and turn.get("role") == "user"
    ]
    last = said[-1] if said else prompt
    return last.get("text") if isinstance(last, Mapping) else last
