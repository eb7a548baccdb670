import asyncio
import threading
import time
from concurrent.futures import Future

import pytest

from astra_parts.services.deadline import all_within, answers_within, blocking_within
from astra_parts.services.limited_client import TooLongError

SHORT_S = 0.05


@pytest.fixture
def loop():
    """A loop in a thread of its own, as the client of a service has one."""
    own = asyncio.new_event_loop()
    thread = threading.Thread(target=own.run_forever)
    thread.start()
    yield own
    own.call_soon_threadsafe(own.stop)
    thread.join()
    own.close()


def started(loop, *works):
    """Futures of work whose tasks are on the loop."""
    futures = [asyncio.run_coroutine_threadsafe(work, loop) for work in works]
    # Calls of a loop come in order, so the tasks are there when this one has been answered.
    asyncio.run_coroutine_threadsafe(said(""), loop).result()
    return futures


def are_all_gone(loop):
    """Whether no task is left on the loop, a moment after it was told."""
    end = time.monotonic() + 5.0
    while asyncio.all_tasks(loop) and time.monotonic() < end:
        time.sleep(0.001)
    return not asyncio.all_tasks(loop)


async def said(value):
    return value


async def failed():
    raise ConnectionError


async def asks_for_ever():
    await asyncio.get_running_loop().create_future()


def test_answers_come_in_the_order_of_the_questions(loop):
    assert ["a", "b"] == all_within(5.0, started(loop, said("a"), said("b")))


def test_several_late_answers_take_one_limit_and_are_cancelled(loop):
    begin = time.monotonic()
    works = started(loop, *(asks_for_ever() for _ in range(40)))
    answers = answers_within(SHORT_S, works)

    assert {"no answer within 0.05 s"} == {str(each) for each in answers}
    assert time.monotonic() - begin < 20 * SHORT_S
    assert are_all_gone(loop)


def test_what_was_in_time_is_kept_when_others_are_late_or_fail(loop):
    kept, error, late = answers_within(SHORT_S, started(loop, said(1), failed(), asks_for_ever()))

    assert 1 == kept
    assert isinstance(error, ConnectionError)
    assert isinstance(late, TimeoutError)


def test_an_answer_over_its_limit_is_an_error_like_others(loop):
    async def too_long():
        msg = "an answer of more than 3 bytes"
        raise TooLongError(msg)

    kept, error = answers_within(20.0, started(loop, said("a"), too_long()))

    assert ("a", "an answer of more than 3 bytes") == (kept, str(error))


def test_the_first_failure_ends_the_wait_for_the_others(loop):
    begin = time.monotonic()
    with pytest.raises(ConnectionError):
        all_within(60.0, started(loop, asks_for_ever(), failed()))

    assert time.monotonic() - begin < 30.0
    assert are_all_gone(loop)


def test_a_late_answer_is_an_error_where_all_are_needed(loop):
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        all_within(SHORT_S, started(loop, said(1), asks_for_ever()))


def test_what_others_cancelled_is_an_answer_too():
    future = Future()
    future.cancel()

    (answer,) = answers_within(SHORT_S, [future])
    assert isinstance(answer, Exception)


def test_an_interrupted_wait_cancels_too(loop, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("astra_parts.services.deadline.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        answers_within(5.0, started(loop, asks_for_ever()))

    assert are_all_gone(loop)


def test_work_that_blocks_ends_with_the_tasks_that_it_waits_for(loop):
    (before,) = started(loop, asks_for_ever())
    ended = threading.Event()

    def connect():
        try:
            asyncio.run_coroutine_threadsafe(asks_for_ever(), loop).result()
        finally:
            ended.set()

    with pytest.raises(TimeoutError, match="no answer within"):
        blocking_within(SHORT_S, connect, loop=loop)

    assert ended.wait(5.0)
    assert not before.done()
    before.cancel()
    assert are_all_gone(loop)


def test_work_that_blocks_gives_its_answer_or_its_error(loop):
    assert "here" == blocking_within(5.0, lambda: "here", loop=loop)
    with pytest.raises(ZeroDivisionError):
        blocking_within(5.0, lambda: 1 / 0, loop=loop)
