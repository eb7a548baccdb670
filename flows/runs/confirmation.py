"""A run that finds every stage up to date: it needs neither Prefect nor torch."""

from typing import TYPE_CHECKING

from astra_core.errors import AstraError
from flows.registry import is_registered
from flows.runs.limits import limit_of, time_limit
from flows.runs.preparation import params_checked_before
from flows.runs.requests import STEPS, RunRequest
from tasks.machine.console import quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.params.schema import Params
from tasks.pipeline.names import PROMOTION, STAGE_NAMES
from tasks.pipeline.order import drift
from tasks.pipeline.reproduction import changes
from tasks.records.receipt import RECEIPT
from tasks.tracking.errors import StoreError

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


def standing_decision(request: RunRequest) -> "PromotionDecision | None":
    """The decision of a run that finds every stage up to date; None if something must run.

    Loading Prefect and torch takes longer than all the rest. Where a lasting server runs, the
    result is None, so that the run is shown there. A wrong params.yaml and a store that did not
    answer are left to the run itself, which says what is wrong and tries again.
    """
    from flows.servers.addresses import api_url

    if request.force or request.steps != STEPS:
        return None
    try:
        params = params_checked_before() if api_url() is None else None
        if params is None or drift(params=params) is not None or changes():
            return None
    except AstraError:
        return None
    set_environment(params)
    quiet_libraries()
    if not is_registered():
        return None
    decision = _decide(params)
    for name in STAGE_NAMES if decision else ():
        say(f"{name:<13}up to date")
    return decision


def _decide(params: Params) -> "PromotionDecision | None":
    """The gate's decision, in the version's report if it moved an alias; None without the store."""
    from tasks.promotion.decision import promote_attacker

    try:
        with time_limit(limit_of(PROMOTION, params.flow), PROMOTION):
            decision = promote_attacker(params)
    except StoreError:
        return None
    if decision.changed:
        from tasks.report.publish import renew_report

        renew_report(decision.model_name, decision.candidate_version, receipt=RECEIPT)
    return decision
