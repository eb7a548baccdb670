"""What a rollback takes back, and what a kill under way or a second decision leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from decisions import aliases, fought, promote, register_another, tags
from registry_project import Killed, killed_after

from tasks.promotion.decision import DECISIONS, rollback
from tasks.tracking.errors import TrackingError
from tasks.tracking.store import alone_with, connect

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


def test_rollback_returns_to_the_champion_before(succeeded):
    undone = rollback("attacker")

    assert undone.summary() == "attacker version 1 is champion again instead of 2"
    assert aliases() == {"candidate": "2", "champion": "1"}
    assert tags("2")["promotion.decision"] == "rolled_back"


def test_a_version_that_was_rolled_back_is_not_promoted_again(succeeded):
    """A schedule would otherwise undo the rollback within the hour."""
    rollback("attacker")

    refused = promote()

    assert not refused.promoted
    assert "version 2 was rolled back" in refused.reasons[0]

    connect().delete_model_version_tag("attacker", "2", "promotion.decision")
    assert promote().promoted


def test_rollback_goes_back_more_than_one_promotion(succeeded):
    register_another(succeeded, 2)
    promote(evaluate=fought({1: 0.65, 2: 1.0}))

    assert rollback("attacker").previous_version == "1"
    assert rollback("attacker").champion_version == "1"
    assert aliases() == {"candidate": "3", "champion": "1"}


def test_rollback_without_anything_to_go_back_to_is_an_error(project):
    with pytest.raises(TrackingError, match=r"alias 'champion'.*; promote a candidate first"):
        rollback("attacker")

    promote()
    with pytest.raises(TrackingError, match=r"alias 'previous'.*; there is nothing to go back to"):
        rollback("attacker")
    with pytest.raises(TrackingError, match="registered model 'other' must exist"):
        rollback("other")


@pytest.mark.wide
def test_a_promotion_killed_at_any_write_is_completed_by_the_next(project_on_disk):
    promote()
    register_another(project_on_disk, 1, rate=0.9)
    num_writes = 0
    deaths = 0
    while deaths == num_writes:
        num_writes += 1
        deaths += dies(lambda n=num_writes: promote(client=killed_after(n)))
        assert aliases()["champion"] in {"1", "2"}

        promote()

        assert aliases() == {"candidate": "2", "champion": "2", "previous": "1"}
        assert tags("2")["promotion.decision"] == "promoted"
        unpromote()

    # Five tags of the duel, three of the decision, two aliases, one tag, and the round that lived.
    assert num_writes == 12


@pytest.mark.wide
def test_a_rollback_killed_at_any_write_is_completed_by_the_next(project_on_disk):
    promote()
    register_another(project_on_disk, 1, rate=0.9)
    num_writes = 0
    deaths = 0
    while deaths == num_writes:
        num_writes += 1
        promote()
        has_died = dies(lambda n=num_writes: rollback("attacker", client=killed_after(n)))
        deaths += has_died
        if has_died and "previous" in aliases():
            rollback("attacker")

        assert aliases() == {"candidate": "2", "champion": "1"}
        assert tags("2")["promotion.decision"] == "rolled_back"
        connect().delete_model_version_tag("attacker", "2", "promotion.decision")

    assert num_writes == 4  # One tag, two aliases, and the round that lived.


def test_a_promotion_killed_before_the_champion_moved_can_be_rolled_back(championed):
    register_another(championed, 1, rate=0.9)
    dies(lambda: promote(client=killed_after(1, of=["set_registered_model_alias"])))
    assert aliases() == {"candidate": "2", "champion": "1", "previous": "1"}

    rollback("attacker")

    assert aliases() == {"candidate": "2", "champion": "1"}


def dies(act):
    try:
        act()
    except Killed:
        return True
    return False


def unpromote():
    """The registry as it was before version 2 was promoted."""
    client = connect()
    client.set_registered_model_alias("attacker", "champion", "1")
    client.delete_registered_model_alias("attacker", "previous")
    decided = ("promotion.decision", "promotion.reasons", "promotion.previous")
    for key in (*decided, "promotion.duel", "promotion.opponent", "promotion.outcome"):
        client.delete_model_version_tag("attacker", "2", key)


def test_of_two_that_decide_at_once_the_second_waits(project_on_disk):
    with alone_with(DECISIONS):
        code = "from tasks.promotion.decision import rollback; rollback('nobody')"
        second = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(4)
    _, said = second.communicate(timeout=500)

    assert "nobody" in said.splitlines()[-1]
