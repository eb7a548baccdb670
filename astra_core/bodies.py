"""How much of a request or an answer over HTTP is read."""

from collections.abc import Iterable

MOST_JSON = 1 << 24
"""Bytes of a body in JSON, whoever sends it."""

MOST_WEIGHTS = 1 << 36
"""Bytes of weights that a service sends for a model whose size is not known here."""


class TooLongError(Exception):
    """A body is longer than what is read of it."""


def limited(parts: Iterable[bytes], *, most: int) -> Iterable[bytes]:
    """The parts of a body as they come.

    Args:
        parts: In order.
        most: Bytes of all together.

    Raises:
        TooLongError: There are more.
    """
    total = 0
    for part in parts:
        total += len(part)
        if total > most:
            msg = f"the answer is longer than {most} bytes"
            raise TooLongError(msg)
        yield part
