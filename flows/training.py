"""The flow from params.yaml to a promotion decision."""

from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast

from prefect import flow
from prefect.runtime import deployment
from prefect.states import Completed
from pydantic import Field

from flows.orchestration.events import announce_registration, announce_stage
from flows.orchestration.findings import (
    DOCS,
    publish_docs,
    publish_drift,
    publish_evaluation,
    publish_run,
)
from flows.orchestration.lost_runs import note_process
from flows.orchestration.names import scheduled_day, training_name
from flows.orchestration.reports import pipeline_report, publish_validation
from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import run_stage
from flows.promotion import promote
from flows.registry import why_unregistered
from flows.runs.attempts import SKIPPED, StageOutcome
from flows.runs.data_drift import told_drift
from flows.runs.preparation import renew_pipeline, usable_params
from flows.runs.requests import STEPS, RunRequest
from flows.runs.turns import in_turn
from flows.runs.warm_start import begin_from
from flows.settings import assignments_of, planned_params
from tasks.machine.console import say
from tasks.machine.privacy import keep_private
from tasks.params.schema import Params
from tasks.pipeline.reproduction import is_current
from tasks.pipeline.workspace import fill_workspace
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.store import alone_with

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from tasks.promotion.decision import PromotionDecision

# A list to choose from in the form of a deployment; RunRequest refuses another with a hint.
Step = Annotated[str, Field(json_schema_extra={"enum": list(STEPS)})]
Seed = Annotated[int, Field(ge=0)] | Literal["date"]
WORKSPACES = Path(".astra/workspaces")
UNCHANGED = "Unchanged"


class StageRunner(Protocol):
    """Runs one stage under the limits of params.yaml."""

    def __call__(self, name: str, /, *, force: bool = False) -> StageOutcome:
        """The outcome of the stage.

        Raises StageError if it is not done; the message is the stage's own.
        """


@flow(name="red-team-training", flow_run_name=training_name, on_running=[note_process])
def red_team_training(
    force: bool = False,
    warm_start: str | int | None = None,
    overrides: dict[str, Any] | None = None,
    *,
    only: Step | None = None,
    start: Step | None = None,
    end: Step | None = None,
    seed: Seed | None = None,
) -> "PromotionDecision | None":
    """Trains, evaluates, registers and judges an attacker; skips what is up to date.

    params.yaml is never written: a run with values of its own works in a workspace.

    Args:
        warm_start: The version to begin from, a number or an alias such as ``champion``.
        overrides: Values by dotted key of params.yaml, such as ``{"training.lr": 1e-4}``.
        only: The one step to run: a stage, or ``promotion``.
        start: The first step; earlier ones are neither checked nor run.
        end: The last step; without ``promotion`` no decision is made.
        seed: Replaces ``training_seed``, so that rollouts and training differ while models and
            split stay the same; ``date`` is the day of the scheduled start, as 20261123.

    Returns the decision, or None if none was asked for.

    Raises ConfigurationError if params.yaml or the request cannot be used; nothing has run,
    StageError if a stage failed; the message is the stage's own.
    """
    request = RunRequest(only=only, start=start, end=end, force=force)
    values = dict(overrides or {})
    if seed is not None:
        values["training_seed"] = scheduled_day() if seed == "date" else seed
    assignments = assignments_of(values)
    if warm_start is not None:
        assignments += begin_from(warm_start, assignments)
    with workspace(deployment.name or "flow", assignments):
        params = usable_params()
        with told_to_run():
            return _run(params, request)


def _run(params: Params, request: RunRequest) -> "PromotionDecision | None":
    """The decision, in a state of Prefect whose message says it in words."""
    renew_pipeline(params)
    with pipeline_report() as outcomes:
        run_stages(request, stage_runner(params, outcomes))
    words = []
    if is_unchanged(outcomes):
        asked = "every stage" if request.stages == STEPS[:-1] else "all that was asked for"
        words.append(
            f"nothing new to try: {asked} is up to date with training seed {params.training_seed}"
        )
        say(f"{'unchanged':<13}{words[0]}")
    decision = promote(params) if request.decides else None
    if decision is not None:
        words.append(decision.summary())
    state: State[Any] = Completed(message="; ".join(words) or None, data=decision)
    if is_unchanged(outcomes):
        state.name = UNCHANGED
    # Prefect gives the caller of the flow the data of the state.
    return cast("PromotionDecision | None", state)


def is_unchanged(outcomes: Sequence[StageOutcome]) -> bool:
    """Whether stages were asked for and DVC found all of them up to date, so that nothing ran."""
    return bool(outcomes) and all(outcome.state == SKIPPED for outcome in outcomes)


def stage_runner(params: Params, outcomes: list[StageOutcome]) -> StageRunner:
    """A function that runs a stage under the limits of params.yaml and shows its outcome.

    ``outcomes``: gets each stage's outcome, also a failed one's.
    """

    def run(name: str, /, *, force: bool = False) -> StageOutcome:
        outcome = run_stage(name, params.flow, force=force)
        announce_stage(outcome)
        _show(outcome, params)
        outcomes.append(outcome)
        return outcome.require_done()

    return run


def _show(outcome: StageOutcome, params: Params) -> None:
    """Publishes what a stage has found."""
    if outcome.stage == "validation":
        publish_validation()
    if outcome.error is not None:
        return
    if outcome.stage in DOCS:
        publish_docs(outcome.stage)
    if outcome.state != SKIPPED:
        drift = told_drift(outcome.stage, params)
        if drift is not None:
            publish_drift(drift)
    if outcome.stage == "evaluation":
        publish_evaluation()
    if outcome.stage == "registration" and RECEIPT.is_file():
        publish_run()
        if outcome.state != SKIPPED:
            announce_registration(read_record(RECEIPT, RegistrationReceipt))


def run_stages(request: RunRequest, run: StageRunner) -> None:
    """Runs the stages asked for, and registration again if the registry has lost the version.

    Raises StageError if a stage is not done; later ones have not begun.
    """
    for name in request.stages:
        if name == "registration":
            _redo_what_changed(request, run)
        run(name, force=request.force)
    reason = why_unregistered() if "registration" in request.stages else ""
    if reason:
        say(f"{'registration':<13}{reason}: once more")
        run("registration", force=True)


def _redo_what_changed(request: RunRequest, run: StageRunner) -> None:
    """Runs stages again whose params or files changed meanwhile: one state is registered."""
    for name in request.stages[: request.stages.index("registration")]:
        if not is_current(name):
            say(f"{name:<13}what it depends on changed during this run: once more")
            run(name)


@contextmanager
def workspace(name: str, assignments: Sequence[str]) -> Iterator[None]:
    """A context whose working folder has these values in its params.yaml.

    Without values it is the project's own. A workspace stays: the same run again finds its stages
    up to date, and one that was killed resumes. Runs of one name take turns.

    ``name``: the deployment's; each has a folder of its own.

    Raises ConfigurationError if the values, or the paths with them, cannot be used.
    """
    if not assignments:
        # A command has had its turn before it wrote params.yaml.
        with in_turn() if deployment.name else nullcontext():
            yield
        return
    text, params = planned_params(assignments)
    folder = WORKSPACES / name
    keep_private()
    with alone_with(folder):
        fill_workspace(folder, text, params)
        with chdir(folder):
            yield
