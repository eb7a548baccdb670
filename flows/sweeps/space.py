"""The values of keys of params.yaml, and the seeds, that a sweep tries.

``training.lr=1e-4,7e-4`` lists values, as YAML writes them; ``training.lr=log:1e-5..1e-3`` and
``reward.options.nll_weight=0.0..0.5`` are ranges, from which a sampler draws; ``2..5``, with whole
numbers, lists each number from 2 to 5.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt

Setting = tuple[str, ...]
"""The changes of one run to params.yaml, beside its seed: ``section.key=value`` for each axis."""
Scale = Literal["choice", "uniform", "log"]

MAX_POINTS = 10_000
_RANGE = re.compile(r"(log:)?([^,\[\]{}'\"]+?)\.\.([^,\[\]{}'\"]+)")
_PAIRS = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One key and its possible values.

    ``values``: the values as YAML writes them; empty for a range.
    """

    key: str
    scale: Scale
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0

    def assign(self, value: str | float) -> str:
        """``key=value``; a number from a range has six digits, as long as a name can be."""
        return f"{self.key}={value if isinstance(value, str) else format(value, '.6g')}"


def read_axis(text: str) -> Axis:
    """The axis that ``key=values`` describes. Raises ConfigurationError if it cannot be read."""
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not written or not all(key.split(".")):
        msg = (
            f"--set must read section.key=value,value, got {excerpt(text)}; as in "
            "--set training.lr=1e-4,7e-4 or --set training.lr=log:1e-5..1e-3"
        )
        raise ConfigurationError(msg)
    if key in {"seed", "data_seed"}:
        msg = f"--set must name settings, got '{key}'; seeds are --seeds 0..4"
        raise ConfigurationError(msg)
    found = _RANGE.fullmatch(written)
    if found is None:
        return Axis(key, "choice", tuple(_split(key, written)))
    return _range(key, found[2], found[3], is_log=found[1] is not None)


def read_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """An axis for each text.

    Raises ConfigurationError if one cannot be read, or two have the same key.
    """
    axes = tuple(read_axis(text) for text in texts)
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            msg = f"--set must name each key once, got {key} twice; list its values in one"
            raise ConfigurationError(msg)
    return axes


def read_seeds(text: str) -> tuple[int, ...]:
    """The seeds of ``0..4`` or ``0,3,7``, each once."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dots, high = (piece.strip() for piece in part.partition(".."))
        if not low.isdecimal() or (dots and not high.isdecimal()):
            msg = f"--seeds must be whole numbers such as 0..4 or 0,3,7, got {excerpt(text)}"
            raise ConfigurationError(msg)
        last = int(high) if dots else int(low)
        if not int(low) <= last < int(low) + MAX_POINTS:
            msg = f"--seeds must go up, and be fewer than {MAX_POINTS}, got {excerpt(text)}"
            raise ConfigurationError(msg)
        seeds += range(int(low), last + 1)
    return tuple(dict.fromkeys(seeds))


def _range(key: str, low_text: str, high_text: str, *, is_log: bool) -> Axis:
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (is_log and low <= 0.0):
        rule = "go up from above zero" if is_log else "go up from number to number"
        msg = f"range of {key} must {rule}, got {excerpt(f'{low_text}..{high_text}')}"
        raise ConfigurationError(msg)
    if not is_log and _is_whole(low_text) and _is_whole(high_text):
        if high - low >= MAX_POINTS:
            msg = f"range of {key} must hold fewer than {MAX_POINTS} numbers; list some of them"
            raise ConfigurationError(msg)
        return Axis(key, "choice", tuple(str(n) for n in range(int(low), int(high) + 1)))
    return Axis(key, "log" if is_log else "uniform", low=low, high=high)


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", text.strip()) is not None


def _split(key: str, written: str) -> Iterator[str]:
    """The values between commas, except commas in brackets or quotes."""
    value, closers, quote = "", list[str](), ""
    for letter in written:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _PAIRS:
            closers.append(_PAIRS[letter])
        elif closers and letter == closers[-1]:
            closers.pop()
        elif letter == "," and not closers:
            yield _some(key, value)
            value = ""
            continue
        value += letter
    yield _some(key, value)


def _some(key: str, value: str) -> str:
    if not value.strip():
        msg = f"values of {key} must be parted by single commas, got an empty one; write null or ''"
        raise ConfigurationError(msg)
    return value.strip()
