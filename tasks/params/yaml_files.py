"""YAML that a person wrote, read without trust in its size, depth or aliases.

A few lines of YAML can expand to gigabytes: an alias repeats what its anchor holds, and anchors may
hold aliases. The events are counted first, aliases at their full size, before anything is built.
"""

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.paths import is_file, kind_of

# Our own file has 17 KB, 500 nodes and five levels; the parser reads about 2 MB in a second.
MAX_BYTES = 1 << 18
MAX_NODES = 20_000
MAX_DEPTH = 50

_REASON_LIMIT = 140


def read_yaml_text(path: Path) -> str:
    """The text of a YAML file that is safe to build.

    Raises ConfigurationError if it is no file, no UTF-8, no YAML, or expands to too much.
    """
    if not is_file(path):
        kind = kind_of(path)
        found = "no such file" if kind == "nothing there" else kind
        rule = "exist" if kind == "nothing there" else "be a file"
        msg = f"{path} must {rule}, got {found}; run from the project's root"
        raise ConfigurationError(msg)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        msg = f"{path} must be readable, got: {error.strerror}; check its permissions"
        raise ConfigurationError(msg) from None
    if len(content) > MAX_BYTES:
        msg = f"{path} must be at most {MAX_BYTES >> 10} KiB, got more; is it the right file?"
        raise ConfigurationError(msg)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        msg = (
            f"{path} must be UTF-8, got the byte 0x{content[error.start]:02x} in line {line}; "
            "convert it, for example with iconv, or restore it from git"
        )
        raise ConfigurationError(msg) from None
    check_yaml(text, subject=str(path), way_out="correct that line")
    return text


def check_yaml(text: str, *, subject: str, way_out: str) -> None:
    """Checks that the text is YAML of a sensible size.

    Raises ConfigurationError if it is not; the message begins with ``subject`` and ends with
    ``way_out``.
    """
    try:
        _count(text)
    except Exception as error:  # noqa: BLE001 - the boundary to the parser
        msg = f"{subject} must be YAML, got: {reason_of(error)}; {way_out}"
        raise ConfigurationError(msg) from None


def load_yaml(text: str, *, subject: str, way_out: str) -> Any:
    """The plain values of a checked text (YAML 1.2, so that 1e-4 is a number).

    Raises ConfigurationError if it holds tags, repeated keys or values that cannot be built.
    """
    try:
        return deepcopy(_load(text))
    except Exception as error:  # noqa: BLE001 - the boundary to the parser
        msg = f"{subject} must be YAML of plain values, got: {reason_of(error)}; {way_out}"
        raise ConfigurationError(msg) from None


# A command reads the same text again and again.
@lru_cache(maxsize=16)
def _count(text: str) -> None:
    from ruamel.yaml import YAML

    size = _Size()
    for event in YAML(typ="safe").parse(text):
        size.count(event)


@lru_cache(maxsize=16)
def _load(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def reason_of(error: Exception) -> str:
    """Why YAML was refused, with the line where that is known."""
    words = str(getattr(error, "problem", "") or error or type(error).__name__)
    # The parser goes on to say how a program could allow a repeated key.
    words = shorten(words.partition("To suppress this check")[0], limit=_REASON_LIMIT)
    if words == "found unexpected ':'":
        words += " where a text with a colon needs quotes"
    mark = getattr(error, "problem_mark", None)
    return words if mark is None else f"{words} (line {mark.line + 1})"


class _TooMuchError(Exception):
    """The text expands to more than any real file."""


class _Size:
    """The number of nodes in a stream of events, with every alias written out."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str, int] = {}
        self._total = 0

    def count(self, event: Any) -> None:
        """Adds one event.

        Raises _TooMuchError if there are too many nodes or levels, or an anchor holds itself.
        """
        from ruamel.yaml import events

        if isinstance(event, events.CollectionStartEvent):
            self._open.append((event.anchor, self._total))
            if len(self._open) > MAX_DEPTH:
                msg = f"more than {MAX_DEPTH} levels (line {event.start_mark.line + 1})"
                raise _TooMuchError(msg)
            self._total += 1
        elif isinstance(event, events.CollectionEndEvent):
            self._close(*self._open.pop())
        elif isinstance(event, events.ScalarEvent):
            self._total += 1
            self._close(event.anchor, self._total - 1)
        elif isinstance(event, events.AliasEvent):
            self._total += self._size_of(event)
        if self._total > MAX_NODES:
            msg = f"more than {MAX_NODES} values, aliases written out"
            raise _TooMuchError(msg)

    def _size_of(self, event: Any) -> int:
        if any(anchor == event.anchor for anchor, _ in self._open):
            msg = f"an anchor that holds itself, *{event.anchor} (line {event.start_mark.line + 1})"
            raise _TooMuchError(msg)
        # The parser itself reports an unknown anchor.
        return self._sizes.get(event.anchor, 1)

    def _close(self, anchor: str | None, before: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = self._total - before
