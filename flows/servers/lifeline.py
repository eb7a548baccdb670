"""A pipe to the process that started this one; it ends when that process does, however that ends.

The kernel closes the other end also after ``kill -9``. What starts us keeps the end it got as the
``stdin`` of its ``Popen``; other children do not inherit it.
"""

import os
import threading
from collections.abc import Callable

STDIN = 0


def at_end_of_lifeline(act: Callable[[], None]) -> None:
    """Calls ``act`` in a thread once standard input has ended."""
    threading.Thread(target=_wait, args=(act,), daemon=True).start()


def _wait(act: Callable[[], None]) -> None:
    while os.read(STDIN, 1024):
        pass
    act()
