"""A run that is killed while calls are under way, at a server that honours no key."""

from contextlib import suppress

import psutil
import pytest
from asking import PROBES, ask, endpoint, texts
from hostile_server import hostile_server, well
from killed_run import everything, killed_at, the_run

from astra_core.rollout import Failure
from astra_core.target import Answer
from astra_core.targets.under_way import is_alive

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]


def relays():
    """Those of this process, other tests' included."""
    found = set()
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "astra_core.targets.relay_process" in each.cmdline():
                found.add(each)
    return found


def test_a_run_that_is_killed_pays_for_no_call_twice(tmp_path):
    with hostile_server() as server:
        for number in (3, 7):
            killed_at(server, tmp_path, number, whom=the_run)
        target = endpoint(server.url, tmp_path, name="t", receive_after_kill=True)
        told = texts(ask(target))
        target.close()
        asked = dict(server.keys)

    with hostile_server() as other:
        assert told == texts(ask(endpoint(other.url, tmp_path / "whole", name="t")))
        assert dict.fromkeys(other.keys, 1) == asked
    assert 0 == target.calls.tally.again
    assert len(PROBES) == target.calls.replies.spent("default").calls


@pytest.mark.wide
def test_where_the_relay_is_killed_too_what_was_under_way_is_paid_again_and_told(tmp_path, caplog):
    with hostile_server() as server:
        killed_at(server, tmp_path, 3, whom=everything)
        target = endpoint(server.url, tmp_path, name="t", concurrency=4)
        ask(target)

        assert 4 == target.calls.tally.again == len(caplog.records)
        assert len(PROBES) + 4 == len(server.requests)
        assert {1, 2} == set(server.keys.values())
    assert "may be charged twice" in caplog.text


def test_a_relay_does_what_its_parent_would_and_ends_with_it(tmp_path):
    def busy(handler, body, number):
        handler.give_json({}, 429, Retry_After="0") if number == 1 else well(handler, body, number)

    before = relays()
    with hostile_server(busy) as server:
        target = endpoint(server.url, tmp_path, receive_after_kill=True, concurrency=1)
        first = ask(target, PROBES[:2])
        (child,) = relays() - before
        owner = target.calls.replies.owner.name
        child.kill()
        # Who comes next starts another one.
        assert all(isinstance(each, Answer) for each in ask(target, PROBES[2:4]))
        assert [] == [each for each in first if isinstance(each, Failure)]
        assert is_alive(target.calls.replies.path, owner)
        path = target.calls.replies.path
        target.close()

    assert set() == relays() - before
    assert not is_alive(path, owner)
    with hostile_server() as server:
        assert texts(first) == texts(ask(endpoint(server.url, tmp_path / "other"), PROBES[:2]))
        # Without `receive_after_kill` there is none.
        assert set() == relays() - before
