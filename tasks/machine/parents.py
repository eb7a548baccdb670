"""Processes that must not outlive the one they work for, even if that ends by ``kill -9``.

When a parent ends, however it ends, the kernel gives its children another parent at once. So the
number of the parent is checked again and again.
"""

import os
import signal
import threading
import time
from collections.abc import Callable

POLL_S = 1.0
STOP_GRACE_S = 5.0
STARTED_BY = "ASTRA_STARTED_BY"
"""The variable with the number of the process that starts a group: it may end before the group asks
for its parent."""
SHELLS = frozenset({"sh", "dash", "bash", "zsh", "ksh", "fish"})


def end_group_with_parent() -> None:
    """Stops this process group, if we lead it, once our parent is gone."""
    if os.getpgrp() != os.getpid():
        return
    parent = int(os.environ.pop(STARTED_BY, os.getppid()))
    _watch(lambda: os.getppid() == parent, lambda number: os.killpg(os.getpgrp(), number))


def end_with_dvc() -> None:
    """Stops this process once the DVC that started it is gone; does nothing outside of DVC."""
    if not os.environ.get("DVC_STAGE"):
        return
    import psutil

    parents = psutil.Process().parents()
    # DVC hands a command to a shell, which may be our parent in its place.
    started_by = next((parent for parent in parents if parent.name() not in SHELLS), None)
    if started_by is not None:
        _watch(started_by.is_running, lambda number: os.kill(os.getpid(), number))


def _watch(lives: Callable[[], bool], send: Callable[[signal.Signals], None]) -> None:
    def end_after_it() -> None:
        while lives():
            time.sleep(POLL_S)
        send(signal.SIGTERM)
        time.sleep(STOP_GRACE_S)
        send(signal.SIGKILL)

    threading.Thread(target=end_after_it, daemon=True).start()
