import signal
import threading
import time

import pytest

from flows.errors import StageTimeoutError
from flows.runs.limits import limit_of, time_limit
from tasks.params.schema import FlowConfiguration


def test_the_limit_of_a_decision_is_its_own_or_that_of_any_stage():
    assert 7.0 == limit_of("promotion", FlowConfiguration(timeout_s=7.0))
    own = FlowConfiguration(timeout_s=7.0, timeouts_s={"promotion": 3.0, "training": 5.0})
    assert 3.0 == limit_of("promotion", own)


def _wait_for_a_store():
    try:
        time.sleep(30.0)
    except Exception:  # noqa: BLE001 - as a boundary to a library has it
        pytest.fail("taken for an error of the store")


def _limited(work):
    with time_limit(0.05, "promotion"):
        work()


def test_what_takes_too_long_ends_even_where_errors_are_expected():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(StageTimeoutError, match=r"^promotion must end within 0\.05 s; raise flow"):
        _limited(_wait_for_a_store)

    assert before == signal.getsignal(signal.SIGALRM)
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)


def test_what_ends_in_time_is_left_alone():
    with time_limit(0.05, "promotion"):
        pass
    time.sleep(0.1)


def test_another_thread_has_no_limit():
    ended = []

    def work():
        with time_limit(0.01, "promotion"):
            time.sleep(0.05)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [True] == ended
