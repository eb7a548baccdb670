"""Waits for answers until a deadline; a call without an answer by then is cancelled.

Otherwise a client that retries until it gets an answer would go on retrying in the background, and
keep its connections open.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, TypeVar

import httpx

from astra_parts.services.limited_client import TooLongError

T = TypeVar("T")


def answers_within(limit_s: float, futures: Sequence[Future[T]]) -> list[T | Exception]:
    """The result of each call; they run at the same time, so the limit is for all together.

    ``futures``: running calls. Those without an answer are cancelled, whatever ends the wait.

    Returns answers; the error of what failed, and a TimeoutError for what was late.
    """
    try:
        wait(futures, timeout=limit_s)
        return [_answer(future, limit_s) for future in futures]
    finally:
        cancel(futures)


def all_within(limit_s: float, futures: Sequence[Future[T]]) -> list[T]:
    """The answers of all calls; the first failure ends the wait for the others and is raised.

    ``futures``: running calls. Those without an answer are cancelled, whatever ends the wait.

    Raises TimeoutError if one of them was late.
    """
    try:
        done, _ = wait(futures, timeout=limit_s, return_when=FIRST_EXCEPTION)
        # In order, so that the same error is raised each time; an error comes before a timeout.
        for future in sorted(futures, key=lambda each: each not in done):
            if isinstance(answer := _answer(future, limit_s), Exception):
                raise answer
        return [future.result() for future in futures]
    finally:
        cancel(futures)


def blocking_within(limit_s: float, work: Callable[[], T], *, loop: asyncio.AbstractEventLoop) -> T:
    """The result of work that blocks its thread until tasks that it starts on a loop have ended.

    Args:
        limit_s: Seconds from now; then the tasks that it started are cancelled, which ends it too.
        work: Runs in its own thread, which ends with the process.

    Raises TimeoutError if the work was late.
    """
    before, future = asyncio.all_tasks(loop), Future[T]()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- told in the thread that waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return all_within(limit_s, [future])[0]
    finally:
        if not future.done():
            for task in asyncio.all_tasks(loop) - before:
                loop.call_soon_threadsafe(task.cancel)


def cancel(futures: Sequence[Future[T]]) -> None:
    """Cancels running calls; a finished one keeps its result."""
    for future in futures:
        future.cancel()


def _answer(future: Future[Any], limit_s: float) -> Any:
    if not future.done():
        return TimeoutError(f"no answer within {limit_s:g} s")
    try:
        return future.result()
    except TooLongError as error:
        return httpx.StreamError(str(error))
    except Exception as error:  # noqa: BLE001 -- whatever a client says is its answer
        return error
