import json
import time

import pytest

from tasks.machine import heartbeat as module
from tasks.machine.console import at_work, progress
from tasks.machine.heartbeat import Heartbeat, heartbeat
from tasks.machine.telling import VARIABLE


@pytest.fixture
def often(monkeypatch):
    """Lines come at once."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def until(heard, words):
    while not any(words in line for line in heard):
        time.sleep(0.005)


@pytest.mark.usefixtures("often")
def test_a_heartbeat_shows_where_the_loop_is():
    heard = []
    with heartbeat("training", 8, show=heard.append) as beat:
        beat.advance(2, note="success 25%")
        until(heard, "2 of 8 (25%) after 0 s, success 25%")


@pytest.mark.usefixtures("often")
def test_a_loop_takes_the_place_of_its_stage():
    heard = []
    with heartbeat("evaluation", show=heard.append):
        until(heard, "evaluation   at work for 0 s")
        with heartbeat("attacker", 4, show=print) as beat:
            beat.advance(1)
            until(heard, "attacker     1 of 4 (25%) after 0 s")
        heard.clear()
        until(heard, "evaluation   at work")


def test_what_a_resumed_loop_found_done_took_no_time(clock):
    beat = Heartbeat("training", 10)
    beat.advance(4)
    assert "left" not in beat.line()
    clock[0] += 6.0
    beat.advance(3)

    assert "training     7 of 10 (70%) after 6 s, about 6 s left" == beat.line()


def test_the_time_left_is_that_of_rounds_of_this_run_alone(clock):
    """Not of an earlier one, of its start, nor of a round that has not ended."""
    beat = Heartbeat("training", 10)
    left = [beat.seconds_left()]
    for num_done in (0, 1, 1, 0):
        beat.advance(num_done)
        left.append(beat.seconds_left())
        clock[0] += 5.0

    # 5 s a round, and of the third 5 s are over.
    assert [None, None, 45.0, 40.0, 35.0] == left
    beat.advance(3)
    clock[0] += 2.0
    assert (20.0 / 5) * 5 - 2.0 == beat.seconds_left()
    # A round that takes longer than those before it takes the estimate with it.
    clock[0] += 4.0
    assert 6.0 * 4 == beat.seconds_left()
    clock[0] += 3.0
    assert beat.seconds_left() is None
    beat.advance(4)
    clock[0] += 5.0
    assert beat.seconds_left() is None


@pytest.mark.usefixtures("often")
def test_lines_come_where_no_bar_is_drawn_and_in_the_logs_of_a_run(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "told"))
    with at_work("training"):
        time.sleep(0.1)
        with progress("training", 4) as advance:
            advance(1, note="success 30%")
            time.sleep(0.1)
    told = capfd.readouterr()
    logs = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]

    assert "" == told.out
    assert "training     1 of 4 (25%) after 0 s, success 30%" in told.err
    assert {"INFO"} == {level for level, line in logs if "1 of 4 (25%)" in line}
    # Of interest to debuggers.
    assert {"DEBUG"} == {level for level, line in logs if "at work for" in line}


def test_a_long_name_stays_apart_from_what_follows():
    beat = Heartbeat("training the builtin model", 4)

    assert beat.line().startswith("training the builtin model 0 of 4 (0%) after")
