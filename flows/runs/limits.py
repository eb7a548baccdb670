"""A limit on the wall clock of what runs in this process; imports no Prefect."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.errors import StageTimeoutError
from tasks.params.schema import FlowConfiguration


class _Expired(BaseException):
    """The time is over; not an ``Exception``, so that code that handles errors lets it through."""


def limit_of(step: str, limits: FlowConfiguration) -> float:
    """The seconds that one try of a step may take: its own limit, or that of all steps."""
    return limits.timeouts_s.get(step, limits.timeout_s)


@contextmanager
def time_limit(seconds: float, subject: str) -> Iterator[None]:
    """A context whose Python code is interrupted after so many seconds, wherever it is.

    It works in the main thread, where flows and commands run; another thread gets no signal and so
    has no limit.

    Raises StageTimeoutError if the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Expired:
        msg = f"{subject} must end within {seconds:g} s; raise flow.timeouts_s in params.yaml"
        raise StageTimeoutError(msg) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _expire(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Expired
