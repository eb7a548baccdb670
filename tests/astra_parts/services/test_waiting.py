import pytest
from each_row import each_row

from astra_parts.services.waiting import Seen, wait_for


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now, self.naps = 0.0, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds


def waited(*statuses, limit_s=10.0, every_s=4.0):
    hours, looks = Hours(), list(statuses)

    def look():
        return Seen(looks.pop(0) if len(looks) > 1 else looks[0], "why", {"model": "m"})

    ending = wait_for(look, limit_s=limit_s, every_s=every_s, clock=hours.clock, sleep=hours.sleep)
    return ending, hours.naps


@each_row(
    ("word", "outcome"),
    [
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("Canceled", "cancelled"),
        ("refused", "refused"),
        ("expired", "expired"),
        ("timed out", "timed_out"),
    ],
)
def test_every_end_is_known(word, outcome):
    ending, naps = waited("queued", "running", word)

    assert Seen(outcome, "why", {"model": "m"}) == ending
    assert outcome == ending.outcome
    assert [4.0, 4.0] == naps


@each_row("word", ["running", "a new word"])
def test_no_wait_is_longer_than_its_limit(word):
    ending, naps = waited(word)

    assert ("timed_out", f"still '{word}' after 10 s") == (ending.status, ending.detail)
    assert [4.0, 4.0, 2.0] == naps


def test_what_ended_at_the_limit_has_ended():
    ending, _ = waited("running", "running", "running", "succeeded")

    assert "succeeded" == ending.status


def test_an_error_of_the_service_passes_through():
    def look():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        wait_for(look, limit_s=1.0)
