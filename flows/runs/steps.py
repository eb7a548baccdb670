"""Runs the steps in order; imports no Prefect."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from astra_core.errors import ConfigurationError
from flows.registry import why_unregistered
from flows.runs.attempts import StageOutcome
from flows.runs.preparation import renew_pipeline
from flows.runs.requests import RunRequest
from tasks.machine.console import say
from tasks.params.overlay import laid_over
from tasks.params.schema import read_params


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


@contextmanager
def values_of(request: RunRequest) -> Iterator[None]:
    """A context in which the request's values hold; params.yaml is never written.

    Afterwards dvc.yaml matches params.yaml again, and one line says which values made the files.
    """
    values = request.values
    has_run = bool(values)
    try:
        with laid_over(values):
            yield
    except ConfigurationError:
        has_run = False
        raise
    finally:
        if has_run:
            _go_back(values)


def _go_back(values: Mapping[str, Any]) -> None:
    try:
        renew_pipeline(read_params())
    except ConfigurationError:
        # The next command reports a params.yaml that is usable only with these values.
        return
    say(
        f"{'params.yaml':<13}unchanged: {', '.join(values)} held for this run, whose files are "
        "here now; 'astra run' undoes that, --save keeps the values"
    )
