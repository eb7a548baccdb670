"""A limit on the wall clock of what runs in this process; imports no Prefect."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.errors import StageTimeoutError
from tasks.params.schema import FlowConfiguration
from tasks.pipeline.names import PROMOTION


class _Expired(BaseException):
    """The time is over; no error, so that nobody on the way takes it for one that he expects."""


def promotion_limit(limits: FlowConfiguration) -> float:
    """The seconds that a decision may take: of its own, or of any stage."""
    return limits.timeouts_s.get(PROMOTION, limits.timeout_s)


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
