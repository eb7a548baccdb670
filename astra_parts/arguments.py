"""Command lines that report a mistake in one line."""

import argparse
import math
from typing import NoReturn

from astra_core.errors.exception_text import excerpt, shorten

_MOST = 1_000_000_000
_MOST_DIGITS = 18


class LineParser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line, without printing its usage first."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with status 2."""
        self.exit(2, shorten(f"error: {message}; see '{self.prog} --help'") + "\n")


def whole_number(text: str) -> int:
    """The number that was written, from 0 on, for an option such as a seed.

    Raises argparse.ArgumentTypeError if it is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        msg = f"must be a whole number of at least 0, got {excerpt(text)}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def at_least_one(text: str) -> int:
    """The number that was written, from 1 on, for an option that counts things.

    Raises argparse.ArgumentTypeError if it is none.
    """
    number = whole_number(text)
    if not 1 <= number <= _MOST:
        msg = f"must be a whole number from 1 to {_MOST}, got {number}"
        raise argparse.ArgumentTypeError(msg)
    return number


def not_negative(text: str) -> float:
    """The number that was written, for an option that is a limit.

    Raises argparse.ArgumentTypeError if it is none, below 0 or not finite.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        msg = f"must be a number of at least 0, got {excerpt(text)}"
        raise argparse.ArgumentTypeError(msg)
    return value
