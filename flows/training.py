"""The flow from params.yaml to a promotion decision, one line per stage."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prefect import flow

from astra_core.errors import AstraError, ConfigurationError
from astra_core.errors.exception_text import shown_text
from astra_core.files import write_text
from astra_core.paths import kind_of
from flows.orchestration.reports import PipelineReport, publish_validation
from flows.orchestration.stages import StageOutcome, run_stage
from flows.promotion import promote
from flows.registry import is_registered
from flows.warm_start import begin_from
from tasks.machine.console import quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.machine.privacy import keep_private
from tasks.params.checks import check_params
from tasks.params.schema import Params, read_params
from tasks.pipeline.order import PIPELINE_FILE, read_pipeline, render
from tasks.pipeline.precision import advise
from tasks.tracking.address import check_tracking_uri
from tasks.tracking.store import tracking_uri

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


@flow(name="red-team-training")
def red_team_training(
    force: bool = False, warm_start: str | int | None = None
) -> "PromotionDecision":
    """Trains, evaluates, registers and judges an attacker; skips what is up to date.

    Args:
        force: Also run the stages that DVC finds up to date.
        warm_start: The version to train on from, a number or an alias such as ``champion``, which
            is written into params.yaml; by default params.yaml is left as it is.

    Raises:
        ConfigurationError: params.yaml cannot be used; nothing has run.
        StageError: A stage failed; the message is the stage's own.
    """
    params = usable_params()
    if warm_start is not None and begin_from(warm_start, params):
        params = usable_params()
    renew_pipeline(params)
    with PipelineReport() as report:
        run = stage_runner(params, report, force=force)
        run("prompts")
        try:
            run("validation")
        finally:
            publish_validation()
        run("models")
        run("rollouts")
        run("training")
        run("evaluation")
        run("registration")
        if not is_registered():
            say(f"{'registration':<13}the registry has lost this version: once more")
            stage_runner(params, report, force=True)("registration")
    return promote(params)


def usable_params() -> Params:
    """The checked params.yaml, with its environment set and the libraries' logs silenced.

    Raises:
        ConfigurationError: Says what is invalid and how to fix it.
        TrackingError: ``MLFLOW_TRACKING_URI`` names no store.
    """
    check_tracking_uri(tracking_uri())
    keep_private()
    params = read_params()
    set_environment(params)
    quiet_libraries()
    try:
        check_params(params)
    except AstraError as error:
        # The cause can quote an attack, and Prefect logs the whole chain unmasked.
        raise ConfigurationError(shown_text(error)) from None
    advise(params)
    return params


def renew_pipeline(params: Params) -> None:
    """Rewrites dvc.yaml if params.yaml names other files; DVC would not track missing ones."""
    wanted = render(params=params)
    is_there = kind_of(PIPELINE_FILE) != "nothing there"
    if not is_there or read_pipeline() != wanted:
        write_text(wanted, PIPELINE_FILE, is_shared=True)
        say(f"{PIPELINE_FILE.name:<13}rewritten to match params.yaml and the stages")


def stage_runner(
    params: Params, report: PipelineReport, *, force: bool = False
) -> Callable[[str], StageOutcome]:
    """A function that runs a stage under the limits of params.yaml and records how it went."""
    limits = params.flow

    def run(name: str) -> StageOutcome:
        outcome = run_stage(
            name,
            timeout_s=limits.timeouts_s.get(name, limits.timeout_s),
            retries=limits.retries,
            retry_delay_s=limits.retry_delay_s,
            force=force,
        )
        return report.add(outcome)

    return run
