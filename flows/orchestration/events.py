"""Events of a run for Prefect's automations: stages that ended, registrations and decisions.

An event is only a notice: if it does not arrive, the run is the same. ``docs/prefect.md`` lists
the events.
"""

from typing import TYPE_CHECKING, Any

from prefect.events import emit_event

from flows.runs.attempts import StageOutcome
from tasks.records.receipt import RegistrationReceipt

if TYPE_CHECKING:
    from flows.runs.data_drift import DataDrift
    from tasks.promotion.decision import PromotionDecision
    from tasks.promotion.reevaluation import Reevaluation

STAGE_ENDED = "astra.stage.ended"
REGISTERED = "astra.version.registered"
PROMOTED = "astra.version.promoted"
REFUSED = "astra.version.refused"
DRIFTED = "astra.champion.drifted"
EXAMINED = "astra.champion.examined"
DATA_DRIFTED = "astra.data.drifted"


def announce_stage(outcome: StageOutcome) -> None:
    """Announces that a stage ended: how, after how long, and why if it failed."""
    payload = {
        "state": outcome.state,
        "seconds": outcome.seconds,
        "attempts": outcome.attempts,
        "message": outcome.message,
    }
    _announce(STAGE_ENDED, f"stage.{outcome.stage}", name=outcome.stage, payload=payload)


def announce_registration(receipt: RegistrationReceipt) -> None:
    """Announces that a version is in the registry."""
    payload = {"run_id": receipt.run_id, "checkpoint_digest": receipt.checkpoint_digest}
    _announce_version(REGISTERED, receipt.model_name, receipt.version, payload=payload)


def announce_decision(decision: "PromotionDecision") -> None:
    """Announces that a version became champion or was refused, once."""
    if not decision.changed:
        return
    compared = decision.comparison
    figures = {}
    if compared is not None:
        names = ("gain", "low", "high", "candidate", "champion", "num_prompts")
        figures = {name: getattr(compared, name) for name in names}
    payload = {"summary": decision.summary(), "reasons": list(decision.reasons), **figures}
    event = PROMOTED if decision.promoted else REFUSED
    _announce_version(event, decision.model_name, decision.candidate_version, payload=payload)


def announce_reevaluation(found: "Reevaluation") -> None:
    """Announces the champion's success today, and whether it differs from the registered one."""
    if found.version is None:
        return
    drift = found.drift.record() if found.drift else {}
    payload = {"summary": found.summary(), "drift": drift, "run_id": found.run_id}
    event = DRIFTED if found.has_drifted else EXAMINED
    _announce_version(event, found.model_name, found.version, payload=payload)


def announce_data_drift(found: "DataDrift") -> None:
    """That prompts or rollouts are unlike those of the champion."""
    subject = found.large[0].subject
    payload = {"summary": found.summary(), **found.record()}
    _announce(DATA_DRIFTED, f"data.{subject}", name=subject, payload=payload)


def _announce_version(
    event: str, model_name: str, version: str, *, payload: dict[str, Any]
) -> None:
    name = f"{model_name} version {version}"
    _announce(event, f"model.{model_name}.version.{version}", name=name, payload=payload)


def _announce(event: str, place: str, *, name: str, payload: dict[str, Any]) -> None:
    resource = {"prefect.resource.id": f"astra.{place}", "prefect.resource.name": name}
    # Prefect logs a failure to send and raises nothing.
    emit_event(event, resource=resource, payload=payload)
