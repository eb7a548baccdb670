"""A limit on the wall clock of what runs in this process; imports no Prefect."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.errors import StageTimeoutError
from tasks.params.schema import FlowConfiguration


class _Expired(BaseException):
    """The time is over; no ``Exception``, so that code that expects errors lets it through."""


def limit_of(step: str, limits: FlowConfiguration) -> float:
    """The seconds that one try of a step may take: of its own, or those of any step."""
    return limits.timeouts_s.get(step, limits.timeout_s)


@contextmanager
def time_limit(seconds: float, subject: str) -> Iterator[None]:
    """The context that ends after so many seconds, wherever its Python code is then.

    Holds in the main thread, where flows and commands run; another thread gets no signal and so no
    limit.

    Args:
        seconds: The limit.
        subject: Of the error: ``promotion``.

    Raises:
        StageTimeoutError: The time was over.
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
