"""How often Python looks for garbage: less often, and not once more as a process ends.

Torch, transformers, MLflow and Great Expectations leave a million objects that stay. To look
through them again and again takes a quarter of their import, and one to two seconds at a process's
end.
"""

import atexit
import gc

YOUNG = 5_000
"""New objects after which the youngest are looked through; Python 3.11's own number is 700."""


def collect_rarely() -> None:
    """Sets both for the rest of this process, before it imports what is large."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    # Handlers run in the reverse order, so this is the last. What it spares is collected no more:
    # what must be closed at the end, such as a database, needs a handler or finalizer of its own.
    atexit.register(gc.freeze)
