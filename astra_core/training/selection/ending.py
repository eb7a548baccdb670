"""When a run ends: its rules, its budgets, and replies that could not be paid for."""

from collections.abc import Iterator

from astra_core.config import EarlyStopping
from astra_core.errors import BudgetError
from astra_core.training.distribution.distributed import World
from astra_core.training.progress import Progress, StepReport
from astra_core.training.selection.stopping import Best, Stopping


class Ending:
    """Decides when a run ends, and why; the same in every process that trains.

    ``rules``: ``training.early_stopping``.

    ``unpaid``: why the target's budget refused calls, in words; empty otherwise.
    """

    def __init__(self, rules: EarlyStopping, *, world: World) -> None:
        self.stopping = Stopping(rules)
        self.unpaid = ""
        self._is_timed = rules.max_seconds is not None
        self._world = world

    def spent_budget(self, progress: Progress) -> str:
        """The budget of updates or seconds that is used up, in words; clocks may differ."""
        reason = self.stopping.spent_budget(progress.step)
        return self._world.first_says(reason) if self._is_timed else reason

    def reason(self, progress: Progress, best: Best, *, training_steps: int) -> str:
        """Why a run of so many training steps ends now, in words; empty while it continues."""
        is_done = progress.training_step >= training_steps
        return (
            self.unpaid
            or self.stopping.reason(progress.step, best)
            or ("all training steps are done" if is_done else "")
        )

    def within_budget(self, reports: Iterator[StepReport]) -> Iterator[StepReport]:
        """The reports of a training step; none if its replies cannot be paid for."""
        try:
            yield from reports
        except BudgetError as error:
            self.unpaid = str(error)
