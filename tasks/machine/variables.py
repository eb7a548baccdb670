"""An environment variable that is set for a while, also for processes started meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable_set(name: str, value: str | None) -> Iterator[None]:
    """Sets a variable while the body runs and restores it afterwards; None leaves it as it is."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
