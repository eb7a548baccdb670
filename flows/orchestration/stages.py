"""A stage as a Prefect task: DVC decides whether it must run, a separate process runs it.

A user sees the states Skipped, Completed, Failed and TimedOut, and the message of a failure
is the stage's own. Prefect caches nothing here: DVC decides whether an output is up to date.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from flows.errors import PassingStageError, StageError, StageTimeoutError
from flows.orchestration.run_logs import told_to_run
from flows.runs.attempts import SKIPPED, TIMED_OUT, StageOutcome, run_command
from flows.runs.limits import limit_of
from flows.servers.processes import stage_command
from tasks.machine.console import say
from tasks.params.schema import FlowConfiguration
from tasks.pipeline.reproduction import is_current

P = ParamSpec("P")
R = TypeVar("R")


def can_pass(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether Prefect should try again."""
    return isinstance(state.data, PassingStageError)


def with_retries(
    name: str, limits: FlowConfiguration, *, condition: Any = can_pass, run_name: str = ""
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Makes a function a task, with the retries and the delay of ``flow`` in params.yaml."""
    return task(
        name=name,
        task_run_name=run_name or name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=limits.retries,
        retry_delay_seconds=exponential_backoff(backoff_factor=limits.retry_delay_s),
        retry_jitter_factor=1.0,
        retry_condition_fn=condition,
    )


def run_stage(name: str, limits: FlowConfiguration, *, force: bool = False) -> StageOutcome:
    """The outcome of the stage after its last try; a failed stage does not raise.

    A try that reaches its limit is not repeated.
    """
    attempts, timeout_s = 0, limit_of(name, limits)

    @with_retries(name, limits)
    def attempt() -> State[Any]:
        nonlocal attempts
        attempts += 1
        with told_to_run(name):
            if attempts > 1:
                say(f"{name:<13}try {attempts} of {limits.retries + 1}")
            return _run_once(name, timeout_s=timeout_s, force=force)

    started = time.monotonic()
    state = attempt(return_state=True)
    return _outcome(name, state, seconds=time.monotonic() - started, attempts=attempts)


def _run_once(name: str, *, timeout_s: float | None, force: bool) -> State[Any]:
    """The final state of one try; a failure with reasons is raised."""
    if not force and is_current(name):
        say(f"{name:<13}up to date")
        return Completed(name=SKIPPED, message="DVC found no change.")
    command = stage_command("tasks.pipeline.reproduction", name, *(["--force"] if force else []))
    return run_to_state(name, command, timeout_s=timeout_s)


def run_to_state(name: str, command: Sequence[str], *, timeout_s: float | None) -> State[Any]:
    """Completed or TimedOut, after a command that leaves its failures under ``name``."""
    try:
        run_command(name, command, timeout_s=timeout_s)
    except StageTimeoutError as error:
        return Failed(name=TIMED_OUT, message=str(error), data=error)
    return Completed(message=f"Stage {name} is done.")


def _outcome(name: str, state: State[Any], *, seconds: float, attempts: int) -> StageOutcome:
    error: StageError | None = None
    if not state.is_completed():
        cause = state.result(raise_on_failure=False)
        error = cause if isinstance(cause, StageError) else StageError(str(cause))
    return StageOutcome(
        stage=name,
        state=state.name or state.type.value.title(),
        seconds=round(seconds, 2),
        attempts=attempts,
        message=str(error or state.message or ""),
        error=error,
    )
