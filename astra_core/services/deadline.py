"""Answers that are waited for until a deadline; what has none by then is cancelled, not left.

A client that asks again for as long as nothing comes would else go on asking behind the program's
back, and keep its connections open.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


def answers_within(limit_s: float, futures: Sequence[Future[T]]) -> list[T | Exception]:
    """What came of each; all are asked at once, so that the limit is that of all together.

    Args:
        limit_s: Seconds from now.
        futures: Under way. Those without an answer are cancelled, whatever ends the wait.

    Returns:
        Answers; the error of what failed, and a TimeoutError for what was late.
    """
    try:
        wait(futures, timeout=limit_s)
        return [_answer(future, limit_s) for future in futures]
    finally:
        cancel(futures)


def all_within(limit_s: float, futures: Sequence[Future[T]]) -> list[T]:
    """The answers of all; the first that fails ends the wait for the others, and is raised.

    Args:
        limit_s: Seconds from now.
        futures: Under way. Those without an answer are cancelled, whatever ends the wait.

    Raises:
        TimeoutError: One of them was late.
    """
    try:
        done, _ = wait(futures, timeout=limit_s, return_when=FIRST_EXCEPTION)
        # In their order, so that the error is the same each time; an error comes before a delay.
        for future in sorted(futures, key=lambda each: each not in done):
            if isinstance(answer := _answer(future, limit_s), Exception):
                raise answer
        return [future.result() for future in futures]
    finally:
        cancel(futures)


def blocking_within(limit_s: float, work: Callable[[], T], *, loop: asyncio.AbstractEventLoop) -> T:
    """What comes of work that blocks its thread until tasks have ended which it starts on a loop.

    Args:
        limit_s: Seconds from now; the tasks that it started are then cancelled, which ends it too.
        work: Done in a thread of its own, which ends with the process.
        loop: Runs in another thread.

    Raises:
        TimeoutError: It was late.
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
    """Ends what is under way; what has ended stays as it is."""
    for future in futures:
        future.cancel()


def _answer(future: Future[Any], limit_s: float) -> Any:
    if not future.done():
        return TimeoutError(f"no answer within {limit_s:g} s")
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 -- whatever a client says is its answer
        return error
