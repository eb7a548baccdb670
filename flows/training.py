"""The flow from params.yaml to a promotion decision, one line per stage."""

from typing import TYPE_CHECKING, Any

from prefect import flow

from flows.attempts import StageOutcome
from flows.orchestration.reports import PipelineReport, publish_validation
from flows.orchestration.stages import run_stage
from flows.preparation import renew_pipeline, usable_params
from flows.promotion import promote
from flows.requests import RunRequest
from flows.steps import StageRunner, run_stages, values_of
from flows.warm_start import begin_from
from tasks.params.schema import Params

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


@flow(name="red-team-training")
def red_team_training(
    force: bool = False,
    warm_start: str | int | None = None,
    overrides: dict[str, Any] | None = None,
    *,
    only: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> "PromotionDecision | None":
    """Trains, evaluates, registers and judges an attacker; skips what is up to date.

    Args:
        force: Also run the stages that DVC finds up to date.
        warm_start: The version to train on from, a number or an alias such as ``champion``, which
            is written into params.yaml; by default params.yaml is left as it is.
        overrides: Values by dotted key, such as ``{"training.lr": 1e-4}``, that hold for this run
            alone; params.yaml is left as it is.
        only: The one step to run: a stage, or ``promotion``.
        start: The first step; earlier ones are neither checked nor run.
        end: The last step; without ``promotion`` no decision is made.

    Returns:
        The decision, or nothing where none was asked for.

    Raises:
        ConfigurationError: params.yaml or what is asked cannot be used; nothing has run.
        StageError: A stage failed; the message is the stage's own.
    """
    pairs = tuple((overrides or {}).items())
    request = RunRequest(pairs, only=only, start=start, end=end, force=force)
    with values_of(request):
        params = usable_params()
        if warm_start is not None and begin_from(warm_start, params):
            params = usable_params()
        renew_pipeline(params)
        with PipelineReport() as report:
            run_stages(request, stage_runner(params, report))
        return promote(params) if request.decides else None


def stage_runner(params: Params, report: PipelineReport) -> StageRunner:
    """A function that runs a stage under the limits of params.yaml and records how it went."""
    limits = params.flow

    def run(name: str, /, *, force: bool = False) -> StageOutcome:
        outcome = run_stage(
            name,
            timeout_s=limits.timeouts_s.get(name, limits.timeout_s),
            retries=limits.retries,
            retry_delay_s=limits.retry_delay_s,
            force=force,
        )
        if name == "validation":
            publish_validation()
        return report.add(outcome)

    return run
