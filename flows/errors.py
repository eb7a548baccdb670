"""How a stage can fail in a flow; imports no Prefect."""

from astra_core.errors import AstraError


class StageError(AstraError, RuntimeError):
    """A stage failed in a way that another try cannot mend."""


class PassingStageError(StageError):
    """A stage failed in a way that can pass: a crash, a lost peer, a busy lock."""


class StageTimeoutError(StageError):
    """A stage was stopped at its time limit."""
