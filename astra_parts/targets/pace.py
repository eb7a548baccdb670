"""Requests and tokens per minute, spread evenly; a call waits for its turn."""

import threading
import time
from collections.abc import Callable


class Pace:
    """Gives each call a time to start; can be used by many threads.

    Args:
        requests_per_minute: None for no limit.
        tokens_per_minute: Tokens read and written; None for no limit.
        clock: A clock in seconds.
    """

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._next_request = self._next_token = clock()

    def turn(self, tokens: int) -> float:
        """Seconds to wait before a call of about so many tokens, which is then scheduled."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_request, self._next_token)
            self._next_request = start + self._per_request
            self._next_token = max(self._next_token, now) + tokens * self._per_token
            return start - now

    def correct(self, tokens: int) -> None:
        """Counts so many more tokens than expected; fewer if negative."""
        with self._lock:
            self._next_token += tokens * self._per_token
