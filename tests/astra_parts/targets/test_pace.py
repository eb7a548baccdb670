import pytest

from astra_parts.targets.pace import Pace


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
