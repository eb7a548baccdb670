"""Which parts of an exception may be shown: its text can quote an attack, a reply or a prompt.

Our own messages are shown, since they quote none. Of any other exception only the parts that cannot
contain one are shown, such as the name of a missing module; the rest is masked. The class of the
exception, the file and the line are always shown, so that a mistake can be found.
"""

import os
import reprlib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any

from astra_core.errors import AstraError
from astra_core.redaction import mask, visible, without_credentials

LINE_LIMIT = 300
"""Characters of an error's line; about four rows of a terminal."""

_VALUE_LIMIT = 80
_GAP = " ... "


def excerpt(value: Any, *, limit: int = _VALUE_LIMIT) -> str:
    """The value as Python writes it, on one line and cut in its middle; never raises."""
    shape = reprlib.Repr()
    shape.maxstring = shape.maxother = shape.maxlong = limit
    shape.maxlist = shape.maxtuple = shape.maxdict = 6
    shape.maxlevel = 3
    try:
        # Before it is cut: a part of an address would not look like one.
        written = shape.repr(without_credentials(value) if isinstance(value, str) else value)
    except ValueError:
        # Python writes no integer of more than 4,300 digits.
        return "a number of thousands of digits"
    return shorten(written, limit=limit)


def shorten(text: str, *, limit: int = LINE_LIMIT) -> str:
    """The text without line breaks; of a long one the beginning and the end, where the help is."""
    line = without_credentials(" ".join(text.split()))
    if len(line) <= limit:
        return line
    tail = limit // 3
    return line[: limit - tail - len(_GAP)] + _GAP + line[-tail:]


def suggestion(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """The known name that was probably meant, whatever its capitals, as the end of an error.

    ``otherwise``: what is said if none is near.
    """
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean '{by_lower[near[0]]}'?" if near else otherwise
    return f"; {hint}" if hint else ""


# Of a trace's line; the screen has room for less, and cuts it again.
_LIMIT = 2_000
_MAX_LINES = 25
_MOST = 100_000
_OURS = frozenset({"astra_core", "astra_parts", "tasks", "flows"})
# The folders of Python and its packages.
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
# Packages that contain plug-ins: one may be installed among the libraries.
_named: set[str] = set()


def note_plugin(path: str) -> None:
    """From now on treats the package of an import path as a plug-in's code."""
    _named.add(path.partition(":")[0].partition(".")[0])


def error_line(error: BaseException) -> str:
    """The class of an exception and what may be shown of its text, on one line."""
    text = " ".join(shown_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown_text(error: BaseException) -> str:
    """What may be shown of an exception's text: a line for each problem, each cut where long."""
    lines = _whole_text(error).splitlines()
    rest = [f"and {len(lines) - _MAX_LINES} lines more"] if len(lines) > _MAX_LINES else []
    return "\n".join([*(shorten(line, limit=_LIMIT) for line in lines[:_MAX_LINES]), *rest])


def _whole_text(error: BaseException) -> str:
    try:
        # Nobody reads more, and masking it takes time.
        text = str(error)[:_MOST]
    except Exception as other:  # noqa: BLE001 - a third-party class may raise anything
        return f"no text, as {type(other).__name__} was raised for it"
    if isinstance(error, AstraError) and is_ours(error):
        return visible(text)
    if not text or (isinstance(error, SystemExit) and not isinstance(error.code, str)):
        return text
    # One that was never raised here has no frames that show its origin.
    is_plain = not isinstance(error, AstraError | ValueError | LookupError) and error.__traceback__
    # A template writes its own errors.
    is_template = type(error).__module__.startswith("jinja2")
    if is_plain and not is_template and not list(_plugin_frames(error)):
        return visible(" ".join(text.split()))
    if isinstance(error, AstraError):  # one line for each problem
        return "\n".join(mask(line) for line in text.splitlines())
    return _rebuilt_text(error) or mask(text)


def _rebuilt_text(error: BaseException) -> str:
    """Python's own text of some exceptions, rebuilt from their attributes."""
    found = ""
    match error:
        case ModuleNotFoundError(name=str(name)):
            found = f"No module named '{name}'"
        case ImportError(name=str(name)):
            found = f"'{name}' does not have what is imported from it"
        case NameError(name=str(name)) if name.isidentifier():
            found = f"name '{name}' is not defined"
        case AttributeError(name=str(name)) if name.isidentifier():
            found = f"'{type(error.obj).__name__}' has no attribute '{name}'"
        case SyntaxError(filename=str(file), lineno=int(line), msg=str(reason)):
            found = f"{reason} ({Path(file).name}, line {line})"
        case OSError(errno=int(number)):
            found = os.strerror(number)
    return visible(found)


def is_ours(error: BaseException) -> bool:
    """Whether the exception was raised by code of this project, or not raised at all."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not frames or _is_our_frame(frames[-1])


def place_in_plugin(error: BaseException) -> str:
    """The last file and line of a plug-in that the exception came through; empty for none."""
    places = list(_plugin_frames(error))
    if not places:
        return ""
    frame, line = places[-1]
    path = Path(frame.f_code.co_filename)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return visible(f"{here}, line {line}")


def _plugin_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        is_library = frame.f_code.co_filename.startswith(("<frozen", *_LIBRARIES))
        if not _is_our_frame(frame) and (_package(frame) in _named or not is_library):
            yield frame, line


def _is_our_frame(frame: FrameType) -> bool:
    return _package(frame) in _OURS


def _package(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    if name == "__main__":
        # With ``python -m flows.cli`` the module ``__main__`` is still ours.
        name = getattr(frame.f_globals.get("__spec__"), "name", name)
    return str(name).partition(".")[0]


def masked_trace(error: BaseException) -> str:
    """The traceback of an exception and of its causes, each with what may be shown."""
    parts: list[str] = []
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append(_one_trace(current))
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
    return "\nThis led to:\n\n".join(reversed(parts))


def _one_trace(error: BaseException) -> str:
    lines = ["Traceback (most recent call last):\n"] if error.__traceback__ else []
    lines += traceback.format_tb(error.__traceback__)
    lines.append(f"{error_line(error)}\n")
    lines += [f"{mask(str(note))}\n" for note in getattr(error, "__notes__", ())]
    if isinstance(error, BaseExceptionGroup):
        lines += [f"One of the group:\n{masked_trace(inner)}" for inner in error.exceptions]
    return visible("".join(lines))
