"""The errors this project raises, with one root; each belongs to one boundary.

Every error a user can cause reads "subject must rule, got value; fix". Classes take only the
message, so that an orchestrator can pickle them, and inherit from the standard class that a
caller expects.
"""

from astra_core.redaction import visible, without_credentials


class AstraError(Exception):
    """Root of every error that is not a bug of ours.

    It may quote the name of a file or a key, which must not send control codes to the terminal,
    or an address, which must not show a password.
    """

    def __str__(self) -> str:
        return visible(without_credentials(super().__str__()))


class ConfigurationError(AstraError, ValueError):
    """A parameter, plug-in name or option is invalid."""


class DataError(AstraError, ValueError):
    """A file of prompts or rollouts cannot be used as it is."""


class DiskFullError(AstraError, OSError):
    """A disk is full, or a quota or a limit on files is reached."""


class OutOfMemoryError(AstraError, RuntimeError):
    """The machine, a device or a limit has no more memory."""


class ShapeError(AstraError, ValueError):
    """Tensors do not have the axes a function needs."""


class RolloutError(AstraError, RuntimeError):
    """Too much of a rollout failed."""


class TargetError(RolloutError):
    """The target did not answer."""


class AuthorizationError(AstraError, RuntimeError):
    """A target's address may not be attacked."""


class BudgetError(AstraError, RuntimeError):
    """A target's budget is spent; a training then ends, and everything else stops."""


class ChangedTargetError(AstraError, RuntimeError):
    """The target is another model than it was."""


class ScorerError(RolloutError):
    """The scorer did not return scores."""


class TrainingError(AstraError, RuntimeError):
    """Training cannot continue, for example after too many non-finite losses."""


class LostProcessError(TrainingError):
    """A process of a distributed training, or a worker, crashed or did not answer in time."""


class StaleWorkerError(TrainingError):
    """A worker holds other work or other weights than it is asked to use."""


class CheckpointError(AstraError, RuntimeError):
    """A checkpoint is missing, damaged or belongs to another run."""


class GateError(AstraError, RuntimeError):
    """Data or a candidate did not pass a gate; running again cannot change that."""


class PluginError(AstraError, RuntimeError):
    """A plug-in failed, or returned something that its contract forbids."""
