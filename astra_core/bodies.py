"""How much of a request or an answer over HTTP is read."""

from collections.abc import Iterable

MOST_JSON = 1 << 24
"""Bytes of JSON that are read of a request or an answer."""

MOST_WEIGHTS = 1 << 36
"""Bytes of weights that a service sends for a model whose size is not known here."""


class TooLongError(Exception):
    """A body is longer than what is read of it."""


def read_body(parts: Iterable[bytes], *, most: int) -> bytes:
    """A whole body.

    Args:
        parts: Of it, as they come.
        most: Bytes that are read.

    Raises:
        TooLongError: There are more.
    """
    body = bytearray()
    for part in parts:
        body += part
        if len(body) > most:
            msg = f"the answer is longer than {most} bytes"
            raise TooLongError(msg)
    return bytes(body)
