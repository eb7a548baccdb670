"""A pipe to the process that started this one; it closes when that process ends for any reason.

The kernel closes the other end even after ``kill -9``. The parent keeps its end as the ``stdin`` of
its ``Popen``; other children do not inherit it.
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
