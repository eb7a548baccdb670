"""A run without Prefect: the same stages, limits, retries and decision, in this process alone.

Prefect's pages show nothing of it, and no server is started.
"""

import random
import time
from typing import TYPE_CHECKING

from astra_core.errors import AstraError
from flows.errors import PassingStageError, StageError, StageTimeoutError
from flows.registry import is_registered
from flows.runs.attempts import FAILED, SKIPPED, TIMED_OUT, StageOutcome, try_stage
from flows.runs.data_drift import told_drift
from flows.runs.last_request import noted
from flows.runs.limits import limit_of, time_limit
from flows.runs.preparation import params_checked_before, renew_pipeline, usable_params
from flows.runs.requests import STEPS, RunRequest
from flows.runs.steps import StageRunner, run_stages, values_of
from flows.runs.warm_start import begin_from
from tasks.machine.console import quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.params.overlay import laid_over
from tasks.params.schema import FlowConfiguration, Params
from tasks.pipeline.names import PROMOTION, STAGE_NAMES
from tasks.pipeline.order import drift
from tasks.pipeline.reproduction import changes
from tasks.records.receipt import RECEIPT
from tasks.tracking.errors import StoreError

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


def confirmed(request: RunRequest) -> "PromotionDecision | None":
    """The decision of a run that finds every stage up to date; None if something must run.

    It needs neither a temporary Prefect server nor torch, which take longer than all the rest. If
    there is a lasting server, the result is None, so that the run is shown there. Problems found
    here are left to the run itself, which reports them.

    Raises:
        TrackingError: The registry did not answer.
    """
    from flows.servers.addresses import api_url

    if request.force or request.steps != STEPS:
        return None
    try:
        with laid_over(request.values):
            params = params_checked_before() if api_url() is None else None
            if params is None or drift(params=params) is not None or changes():
                return None
    except AstraError:
        return None
    set_environment(params)
    quiet_libraries()
    if not is_registered():
        return None
    with values_of(request):
        for name in STAGE_NAMES:
            say(f"{name:<13}up to date")
        return _decide(params, renews=False)


def run_locally(
    request: RunRequest, *, warm_start: str | None = None
) -> "PromotionDecision | None":
    """The decision, or None if none was asked for.

    Args:
        request: The request of the run.
        warm_start: As in ``flows.training``.

    Raises:
        ConfigurationError: params.yaml cannot be used; nothing has run.
        StageError: A stage failed; the message is the stage's own.
    """
    if warm_start is not None:
        request = begin_from(warm_start, request)
    with values_of(request):
        params = usable_params()
        renew_pipeline(params)
        with noted(request):
            run_stages(request, local_runner(params))
            return _decide(params) if request.decides else None


def local_runner(params: Params) -> StageRunner:
    """A function that runs a stage here, under the limits of params.yaml."""

    def run(name: str, /, *, force: bool = False) -> StageOutcome:
        outcome = run_stage(name, params.flow, force=force).checked()
        if outcome.state != SKIPPED:
            told_drift(name, params)
        return outcome

    return run


def run_stage(name: str, limits: FlowConfiguration, *, force: bool = False) -> StageOutcome:
    """The outcome of the stage after its last try; a failed stage does not raise."""
    timeout_s = limit_of(name, limits)
    started, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        try:
            state, error = try_stage(name, timeout_s=timeout_s, force=force), None
        except StageError as failed:
            state, error = _state_of(failed), failed
        if not isinstance(error, PassingStageError) or attempts > limits.retries:
            break
        _wait_for_retry(name, attempts, limits)
    seconds = round(time.monotonic() - started, 2)
    message = "" if error is None else str(error)
    return StageOutcome(name, state, seconds, attempts, message=message, error=error)


def _state_of(error: StageError) -> str:
    return TIMED_OUT if isinstance(error, StageTimeoutError) else FAILED


def _decide(params: Params, *, renews: bool = True) -> "PromotionDecision":
    """The gate's decision, after it is added to the version's report.

    Args:
        params: They hold the rules.
        renews: False leaves the report unchanged if no alias was moved.
    """
    decision = _asked(params)
    if renews or decision.changed:
        from tasks.report.publish import renew_report

        renew_report(decision.model_name, decision.candidate_version, receipt=RECEIPT)
    return decision


def _asked(params: Params) -> "PromotionDecision":
    """The gate's decision; if the store does not answer, with as many retries as for a stage."""
    from tasks.promotion.decision import promote_attacker

    limits, attempts = params.flow, 0
    while True:
        attempts += 1
        try:
            with time_limit(limit_of(PROMOTION, limits), PROMOTION):
                return promote_attacker(params)
        except StoreError:
            if attempts > limits.retries:
                raise
        _wait_for_retry(PROMOTION, attempts, limits)


def _wait_for_retry(step: str, retry: int, limits: FlowConfiguration) -> None:
    """Waits before a retry of a step, then prints that it begins.

    The pause doubles with each retry and, as in Prefect's engine, is drawn between zero and twice
    its value.
    """
    time.sleep(random.uniform(0.0, 2.0 * limits.retry_delay_s * 2 ** (retry - 1)))
    say(f"{step:<13}try {retry + 1} of {limits.retries + 1}")
