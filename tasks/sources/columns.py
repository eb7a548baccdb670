"""Which columns of a file are kept with a prompt, and what may be in them.

With ``all`` whatever is no plain value is left out and told of in the stage's line, since a file
may have columns that nobody reads. A column that is named must be in every row and hold plain
values.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from astra_core.errors import ConfigurationError, DataError
from astra_core.rollout.metadata import Scalar, problem_of

Wanted = Literal["all"] | tuple[str, ...]
KEY = "prompts.metadata_columns"

# Of one value; a longer text is a document of its own, and every turn of a rollout repeats it.
MAX_CHARACTERS = 20_000
# Names that pandas gives to the index of a table.
_INDEX = re.compile(r"__index_level_\d+__|")
_MAX_SHOWN = 5


@dataclass(slots=True)
class Columns:
    """The choice of columns of one source, and what it left out.

    Attributes:
        text: Holds the prompt itself, and is kept as its text only.
        wanted: Names, or all there are.
        left_out: Columns of which at least one value was not kept, each with the first reason.
        told: What a column is kept as, by the column, such as ``{"Behavior": "goal"}``; each must
            be there, and takes the place of a column of the new name.
    """

    text: str
    wanted: Wanted = "all"
    left_out: dict[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def text_of(self, columns: Iterable[str]) -> str:
        """The column that holds the prompt: that of the goal where there is no other."""
        goal = next((column for column, name in self.told.items() if name == "goal"), None)
        return self.text if goal is None or self.text in columns else goal

    def of_header(self, columns: Sequence[str], *, place: str) -> list[str]:
        """Those of a table's columns that are kept, in their order.

        Raises:
            ConfigurationError: One that is named is not there, or several are.
        """
        for name in self._required:
            count = columns.count(name)
            if count != 1:
                got = "several" if count else shown_names(columns)
                msg = f"{place} must have one column '{name}', got {got}; see {self._key(name)}"
                raise ConfigurationError(msg)
        repeated = {name for name in columns if columns.count(name) > 1}
        for name in sorted(repeated - {self.text}):
            self.left_out.setdefault(name, "several columns")
        return [name for name in columns if self._is_wanted(name) and name not in repeated]

    def picked(self, row: Mapping[str, Any], *, place: str) -> dict[str, Scalar]:
        """What is kept of one row.

        Args:
            row: Values by column.
            place: Of the row, for an error.

        Raises:
            ConfigurationError: It lacks a column that is named.
            DataError: A column that is named has no plain value.
        """
        missing = [name for name in self._required if name not in row]
        if missing:
            got, key = shown_names(row), self._key(missing[0])
            msg = f"{place} must have the key '{missing[0]}', got {got}; see {key}"
            raise ConfigurationError(msg)
        kept: dict[str, Scalar] = {}
        for name in filter(self._is_wanted, row):
            value = _missing_as_null(row[name])
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
        """What was left out, for a person; empty if nothing was."""
        if not self.left_out:
            return ""
        names = shown_names(self.left_out)
        unnamed = len(self.left_out) - len(names)
        told = [f"{name} ({self.left_out[name]})" for name in names[:_MAX_SHOWN]]
        more = unnamed + len(names[_MAX_SHOWN:])
        return ", ".join([*told, *([f"{more} more"] if more else [])])

    @property
    def _required(self) -> list[str]:
        """The columns that are named."""
        wanted = () if self.wanted == "all" else self.wanted
        return list(dict.fromkeys([*wanted, *self.told]))

    def _key(self, name: str) -> str:
        """Where params.yaml names a column."""
        own = self.told.get(name)
        return KEY if own is None else f"prompts.{own.partition('_')[0]}_column"

    def _is_wanted(self, name: str) -> bool:
        if name in self.told:
            return True
        if name == self.text or _INDEX.fullmatch(name) or name in self.told.values():
            return False
        return self.wanted == "all" or name in self.wanted


def shown_names(columns: Iterable[Any]) -> list[str]:
    """The columns that look like names: a file without a header would show its first prompt."""
    return [name for name in map(str, columns) if re.fullmatch(r"\w{1,30}", name)]


def _missing_as_null(value: Any) -> Any:
    """NaN is how tables of numbers spell a value that is missing."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _problem(value: Any) -> str:
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        return f"a text of {len(value):,} characters (at most {MAX_CHARACTERS:,})"
    return problem_of(value)
