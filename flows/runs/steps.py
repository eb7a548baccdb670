"""Runs the steps in order; imports no Prefect."""

from typing import Protocol

from flows.registry import why_unregistered
from flows.runs.attempts import StageOutcome
from flows.runs.requests import RunRequest
from tasks.machine.console import say


class StageRunner(Protocol):
    """Runs one stage under the limits of params.yaml."""

    def __call__(self, name: str, /, *, force: bool = False) -> StageOutcome:
        """The outcome of the stage.

        Raises:
            StageError: It is not done; the message is the stage's own.
        """
        ...


def run_stages(request: RunRequest, run: StageRunner) -> None:
    """Runs the stages asked for, and registration again if the registry has lost the version.

    Raises:
        StageError: A stage is not done; later ones have not begun.
    """
    for name in request.stages:
        run(name, force=request.force)
    reason = why_unregistered() if "registration" in request.stages else ""
    if reason:
        say(f"{'registration':<13}{reason}: once more")
        run("registration", force=True)
