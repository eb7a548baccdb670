import threading
import time

import pytest
from each_row import each_row

from astra_core.errors import BudgetError
from astra_core.rollout import Failure
from astra_parts.targets.calls import CallError, CallOptions, Calls, Pace, Question, about_tokens
from astra_parts.targets.kept import Kept

QUESTIONS = [Question(f"k{number}", {}, 10) for number in range(20)]


def calls(ask, folder, **options):
    given = {"backoff_s": 0.0, "replies": folder, **options}
    return Calls("target 'mine'", CallOptions(**given), ask, file="mine")


def test_equal_questions_are_asked_once_and_answered_in_order(tmp_path):
    asked = []

    def ask(question):
        asked.append(question.key)
        return Kept(question.key)

    found = calls(ask, tmp_path).answers([*QUESTIONS[:3], *QUESTIONS[:3][::-1]])

    assert ["k0", "k1", "k2", "k2", "k1", "k0"] == [each.text for each in found]
    assert ["k0", "k1", "k2"] == sorted(asked)


@each_row("retries", [0, 2])
def test_retries_are_further_tries(tmp_path, retries):
    tries = []

    def ask(question):
        tries.append(question)
        raise CallError(kind="server", words="busy")

    own = calls(ask, tmp_path, retries=retries)

    assert [Failure("target 'mine': busy", "server")] == own.answers(QUESTIONS[:1])
    assert retries + 1 == len(tries) == own.replies.spending("default").calls


def test_backoff_doubles_and_has_jitter(tmp_path):
    own = calls(Kept, tmp_path, backoff_s=2.0)
    waits = [[own._wait_s(number, CallError("x", "y")) for _ in range(20)] for number in range(8)]

    for number, found in enumerate(waits):
        most = min(60.0, 2.0 * 2**number)
        assert all(most / 2 <= each <= most for each in found)
        assert len(set(found)) > 1
    assert own._wait_s(0, CallError("x", "y", wait_s=9.0)) == 9.0


def test_requests_and_tokens_per_minute_slow_calls_down(tmp_path):
    def seconds(**limit):
        own = calls(lambda _: Kept("x", tokens_in=10), tmp_path / str(limit), **limit)
        start = time.monotonic()
        own.answers(QUESTIONS[:4])
        return time.monotonic() - start

    assert seconds(requests_per_minute=600.0) >= 0.3
    assert seconds(tokens_per_minute=6000.0) >= 0.3


def test_a_bug_in_a_call_ends_all_and_keeps_what_was_answered(tmp_path):
    started = threading.Event()

    def ask(question):
        if question.key == "k1":
            started.wait()
            raise ZeroDivisionError
        started.set()
        return Kept(question.key)

    own = calls(ask, tmp_path, concurrency=2)
    with pytest.raises(ZeroDivisionError):
        own.answers(QUESTIONS)

    assert "k0" in own.replies.found(["k0"])


def test_a_spent_budget_says_what_to_do(tmp_path):
    own = calls(lambda _: Kept("x"), tmp_path, budget={"calls": 4, "name": "mine"})

    with pytest.raises(BudgetError, match=r"its budget 'mine', got 0 of 3 calls made and 4 more"):
        own.answers(QUESTIONS[:4])
    assert 3 == len(own.answers(QUESTIONS[:3]))


def test_figures_of_nothing_are_zeros(tmp_path):
    assert {0.0} == set(calls(Kept, tmp_path).figures().values())


def test_about_four_characters_are_a_token():
    assert [1, 1, 2] == [about_tokens(text) for text in ("", "abcd", "abcdefgh")]


def test_without_limits_nobody_waits():
    pace = Pace(None, None)

    assert [0.0] * 3 == [pace.turn(10**6) for _ in range(3)]


def test_requests_are_spread_evenly():
    now = [100.0]
    pace = Pace(30.0, None, clock=lambda: now[0])

    assert [0.0, 2.0, 4.0] == [pace.turn(1) for _ in range(3)]
    now[0] += 5.0
    assert 1.0 == pytest.approx(pace.turn(1))
    now[0] += 60.0
    assert 0.0 == pace.turn(1)


def test_tokens_are_spread_and_corrected_when_they_are_known():
    now = [0.0]
    pace = Pace(None, 600.0, clock=lambda: now[0])

    assert [0.0, 10.0] == [pace.turn(100) for _ in range(2)]
    pace.correct(-50)
    assert 15.0 == pytest.approx(pace.turn(100))
