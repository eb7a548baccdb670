"""What a training leaves: ``reports/training.json`` and a line for the person who waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of the metric that training goes by."""

    metric: str
    value: float | None


@dataclass(frozen=True, slots=True)
class BestMeasured:
    """The best value, and after how many training steps it was found."""

    metric: str
    value: float | None
    training_step: int


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """How a training went.

    Attributes:
        run_key: Digest of its parameters, inputs and code.
        checkpoint_digest: Of the exported weights.
        training_steps: Done.
        optimizer_steps: Updates done.
        engine: The ways that the models were computed, one line.
        training_precision: As params.yaml says.
        system_precision: As a trial settled it.
        num_nonfinite: Updates left out for a loss or a gradient that is no number.
        num_empty_experiences: Experiences without a step to learn from.
        stopped_because: In words.
        first: Before the first update.
        best: Of the exported attacker.
        evaluations: Each with ``step``, ``training_step`` and its metrics.
    """

    run_key: str
    checkpoint_digest: str
    training_steps: int
    optimizer_steps: int
    engine: str
    training_precision: str
    system_precision: str
    num_nonfinite: int
    num_empty_experiences: int
    stopped_because: str
    first: Measured
    best: BestMeasured
    evaluations: tuple[dict[str, int | float | None], ...]


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """How training went."""

    training_steps: int
    optimizer_steps: int
    metric: str
    first: float
    best: float
    best_training_step: int
    stopped_because: str

    def summary(self) -> str:
        """One line."""
        name = self.metric.removeprefix("eval/").replace("_", " ")
        return (
            f"{name} on dev {self.first:.3f} -> {self.best:.3f} "
            f"(step {self.best_training_step} of {self.training_steps}; {self.stopped_because})"
        )
