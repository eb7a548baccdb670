"""How a stage can fail in a flow; imports no Prefect."""

from astra_core.errors import AstraError


class StageError(AstraError, RuntimeError):
    """A stage failed in a way that a retry cannot fix."""


class PassingStageError(StageError):
    """A stage failed in a way that a retry may fix: a crash, a lost process, a busy lock."""


class StageTimeoutError(StageError):
    """A stage was stopped at its time limit."""
