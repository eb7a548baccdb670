"""Events arrive at a real server, each with what it is about."""

import time
from datetime import UTC, datetime

import pytest

from astra_core.metrics.statistics import Interval
from flows.orchestration.events import (
    announce_decision,
    announce_reevaluation,
    announce_registration,
    announce_stage,
)
from flows.runs.attempts import StageOutcome
from tasks.promotion.decision import PromotionDecision
from tasks.promotion.reevaluation import Reevaluation
from tasks.records.receipt import RegistrationReceipt

pytestmark = pytest.mark.real

RATE = Interval(0.5, 0.4, 0.6)


def _decision(*, promoted, changed=True):
    return PromotionDecision(
        promoted=promoted,
        changed=changed,
        reasons=("better",),
        model_name="attacker",
        candidate_version="7",
        champion_version=None,
        previous_version=None,
        comparison=None,
    )


def _reevaluation(low):
    return Reevaluation("attacker", "7", 9, success_rate=RATE, drift=Interval(0.1, low, 0.2))


def _announce_all():
    announce_stage(StageOutcome("training", "Completed", 1.5, 2))
    announce_registration(RegistrationReceipt("attacker", "7", "run", "1", "sqlite://", "c0"))
    announce_decision(_decision(promoted=True))
    announce_decision(_decision(promoted=True, changed=False))
    announce_decision(_decision(promoted=False))
    announce_decision(_decision(promoted=False, changed=False))
    announce_reevaluation(_reevaluation(0.1))
    announce_reevaluation(_reevaluation(-0.1))
    announce_reevaluation(Reevaluation("attacker"))


def test_each_event_arrives_once_with_what_it_is_about(in_flow):
    since = datetime.now(UTC)
    in_flow(_announce_all)
    found = _events(6, since=since)

    assert [
        ("astra.stage.ended", "astra.stage.training"),
        ("astra.version.registered", "astra.model.attacker.version.7"),
        ("astra.version.promoted", "astra.model.attacker.version.7"),
        ("astra.version.refused", "astra.model.attacker.version.7"),
        ("astra.champion.drifted", "astra.model.attacker.version.7"),
        ("astra.champion.examined", "astra.model.attacker.version.7"),
    ] == [(event["event"], event["resource"]["prefect.resource.id"]) for event in found]
    assert 2 == found[0]["payload"]["attempts"]
    assert "attacker version 7 is champion: better" == found[2]["payload"]["summary"]
    # An automation can name the flow run that it came from.
    assert all("flow-run" in str(event["related"]) for event in found)


def _events(number, *, since):
    """The project's events at the server since then, oldest first, once so many are there."""
    from prefect.client.orchestration import get_client

    asked = {"event": {"prefix": ["astra."]}, "occurred": {"since": since.isoformat()}}
    wanted = {"filter": {**asked, "order": "ASC"}, "limit": 50}
    end = time.monotonic() + 60.0
    with get_client(sync_client=True) as client:
        while time.monotonic() < end:
            found = client._client.post("/events/filter", json=wanted).json()["events"]
            if len(found) >= number:
                return found
            time.sleep(0.1)
    return found
