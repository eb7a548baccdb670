"""When a run ends: its rules, its budgets, and what it could not pay for."""

from collections.abc import Iterator

from astra_core.config import TrainingConfiguration
from astra_core.errors import BudgetError
from astra_core.training.distributed import World
from astra_core.training.progress import Progress, StepReport
from astra_core.training.stopping import Best, Stopping


class Ending:
    """Says why a run ends; the same in every process that trains.

    Args:
        config: With the rules.
        world: The processes that train together.

    Attributes:
        stopping: The rules of ``training.early_stopping``.
        unpaid: What a budget of the target refused, in words; empty while it pays.
    """

    def __init__(self, config: TrainingConfiguration, *, world: World) -> None:
        self.stopping = Stopping(config.early_stopping)
        self.unpaid = ""
        self._config = config
        self._world = world

    def spent(self, progress: Progress) -> str:
        """Which budget of updates or seconds is used up, in words; clocks may differ."""
        reason = self.stopping.spent(progress.step)
        is_timed = self._config.early_stopping.max_seconds is not None
        return self._world.first_says(reason) if is_timed else reason

    def reason(self, progress: Progress, best: Best) -> str:
        """Why the run ends now, in words; empty while it continues."""
        is_done = progress.training_step >= self._config.training_steps
        return (
            self.unpaid
            or self.stopping.reason(progress.step, best)
            or ("all training steps are done" if is_done else "")
        )

    def within_budget(self, reports: Iterator[StepReport]) -> Iterator[StepReport]:
        """The reports of a training step; one whose replies cannot be paid for is not made."""
        try:
            yield from reports
        except BudgetError as error:
            self.unpaid = str(error)
