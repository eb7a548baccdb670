"""Regular expressions from a user, found within a time limit.

Some take longer than the age of the universe on a line of text. Python's own ``re`` cannot be
stopped; ``regex``, which reads the same expressions, can.
"""

import regex

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt

LIMIT_S = 2.0
"""Seconds for one expression in one text."""


def check_pattern(name: str, pattern: str) -> None:
    """Raises ValueError unless this is a regular expression."""
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        msg = f"{name} must be a regular expression, got {excerpt(pattern)}: {error}"
        raise ValueError(msg) from None


def occurs(pattern: str, text: str, *, where: str, limit_s: float = LIMIT_S) -> bool:
    """Whether the expression is found in the text.

    ``limit_s``: seconds after which it is given up.

    Raises ConfigurationError if that took too long.
    """
    try:
        return regex.search(pattern, text, timeout=limit_s) is not None
    except TimeoutError:
        msg = (
            f"{where} must be found or missed within {limit_s:g} s, got {excerpt(pattern)}, which "
            f"takes longer in {len(text)} characters; repeat nothing that repeats, as in (a+)+"
        )
        raise ConfigurationError(msg) from None
