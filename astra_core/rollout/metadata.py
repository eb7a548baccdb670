"""Metadata of a prompt beside its text: an immutable mapping of plain values.

A plain value is one that JSON has too: text, a number, true, false or null. A mapping of them
survives every file of a run with its types.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping

from astra_core.errors import DataError
from astra_core.errors.exception_text import excerpt

Scalar = str | int | float | bool | None
CONTEXT = "context"
"""Names what a behaviour is about, such as a passage; with another context it is another prompt."""


class Metadata(Mapping[str, Scalar]):
    """Names and plain values, in a fixed order; can be hashed, copied and sent to a process.

    Raises DataError if a name is no text, or a value is not plain.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Scalar] | None = None) -> None:
        found = dict(values or {})
        for name, value in found.items():
            problem = problem_of(value) if isinstance(name, str) else "a name that is no text"
            if problem:
                msg = (
                    "metadata of a prompt must be text, numbers, true, false or null by name, "
                    f"got {problem} for {excerpt(name)}; leave it out"
                )
                raise DataError(msg)
        self._values: dict[str, Scalar] = found

    def __getitem__(self, name: str) -> Scalar:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Metadata({self._values!r})"


def problem_of(value: object) -> str:
    """Why a value is not plain, in a few words that do not quote it; empty if it is."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a number that is not finite"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "half of a character (a lone surrogate)"
        return ""
    return "" if value is None or isinstance(value, int) else type(value).__name__


def prompt_id_of(text: str, metadata: Mapping[str, Scalar] | None = None) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the text, and of its context if any."""
    context = (metadata or {}).get(CONTEXT)
    whole = text if context in {None, ""} else f"{text}\0{context}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
