"""The scheme of a run's evaluations: which attackers are evaluated, and which one is kept."""

from dataclasses import dataclass
from pathlib import Path

from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError
from astra_core.training.progress import Progress
from astra_core.training.stopping import Best


@dataclass(frozen=True, slots=True)
class EvaluationScheme:
    """What ``training.evaluate`` and ``training.keep`` say together."""

    config: TrainingConfiguration

    @property
    def has_first(self) -> bool:
        """Whether the untrained attacker is evaluated."""
        scheme = self.config.evaluate
        return self.config.eval_first if scheme == "every" else scheme.startswith("first")

    @property
    def has_last(self) -> bool:
        """Whether the attacker is evaluated at the end, however the run ends."""
        return self.config.evaluate in {"every", "last", "first_and_last"}

    def is_due(self, training_step: int) -> bool:
        """Whether the attacker is evaluated after so many training steps."""
        is_last = training_step >= self.config.training_steps
        is_turn = training_step % self.config.eval_every == 0
        return (self.has_last and is_last) or (self.config.evaluate == "every" and is_turn)

    def is_satisfied(self, progress: Progress) -> bool:
        """Whether the last evaluation was of the attacker as it is now, or need not be."""
        points = progress.evaluations
        return not self.has_last or bool(points and points[-1].step == progress.step)

    @property
    def keeps_best(self) -> bool:
        """Whether a run ends with the best attacker rather than the last.

        Without an evaluation of what was learned, there is none to choose.
        """
        return self.config.keep == "best" and self.has_last


def require_same_score(best: Best, value: float, *, folder: Path) -> None:
    """Returns if the best weights, loaded again, score what they scored.

    Raises:
        CheckpointError: They do not.
    """
    if value != best.value:
        msg = (
            f"{folder} must score {best.metric} {best.value} when loaded again, got {value}; "
            "the run is not reproducible on this machine"
        )
        raise CheckpointError(msg)
