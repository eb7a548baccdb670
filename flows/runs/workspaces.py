"""A flow with values of its own works in a workspace, as the points of a sweep do."""

from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path

from flows.settings import planned_params
from tasks.machine.privacy import keep_private
from tasks.pipeline.workspace import fill_workspace
from tasks.tracking.store import alone_with

WORKSPACES = Path(".astra/workspaces")


@contextmanager
def workspace(name: str, assignments: Sequence[str]) -> Iterator[None]:
    """A context whose working folder has these values in its params.yaml.

    Without values it is the project's own. A workspace stays: the same run again finds its stages
    up to date, and one that was killed resumes. Runs of one name take turns.

    Args:
        name: The deployment's; each has a folder of its own.
        assignments: Each ``section.key=value``.

    Raises:
        ConfigurationError: The values, or the paths with them, cannot be used.
    """
    if not assignments:
        yield
        return
    text, params = planned_params(assignments)
    folder = WORKSPACES / name
    keep_private()
    with alone_with(folder):
        fill_workspace(folder, text, params)
        with chdir(folder):
            yield
