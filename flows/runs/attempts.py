"""One try of a stage in a process of its own.

It imports no Prefect. A failure that has reasons is raised with the stage's own words.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from flows.errors import PassingStageError, StageError, StageTimeoutError
from flows.servers.processes import child_environment, run_group
from tasks.machine.console import complain
from tasks.pipeline import failures

SKIPPED, TIMED_OUT = "Skipped", "TimedOut"


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The outcome of one stage in one flow run."""

    stage: str
    state: str
    seconds: float
    attempts: int
    message: str = ""
    error: StageError | None = None

    def require_done(self) -> "StageOutcome":
        """The same outcome, if the stage is done.

        Raises StageError if the stage is not done; the message is the stage's own.
        """
        if self.error is not None:
            raise self.error
        return self


def run_command(name: str, command: Sequence[str], *, timeout_s: float | None) -> None:
    """Returns when a command that leaves its failures under ``name`` has succeeded.

    Raises StageTimeoutError if it was stopped at its limit, StageError if it failed; the message is
    its own.
    """
    environment = child_environment()
    failures.clear_failure(name)
    try:
        status = run_group(command, environment=environment, timeout_s=timeout_s)
    except subprocess.TimeoutExpired:
        msg = f"stage {name} must end within {timeout_s:g} s; raise flow.timeouts_s in params.yaml"
        complain(f"error: {msg}")
        raise StageTimeoutError(msg) from None
    if status != 0:
        raise _failure(name, status)


def _failure(name: str, status: int) -> StageError:
    """The error that a stage's process recorded."""
    failure = failures.read_failure(name)
    if failure is None:
        words = f"stage {name} {failures.cut_off(status)}"
        return PassingStageError(f"{words}; see {failures.LOGS / name}.log")
    return (PassingStageError if failure.retryable else StageError)(failure.message)
