"""Example: a trainer with its own evaluation, windows and saving."""

from collections.abc import Iterator
from itertools import chain, islice

from pydantic import Field

from astra_core.algorithm import Batch
from astra_core.config import Count, Section
from astra_core.evaluator import Evaluator
from astra_core.files import draft_folder_of
from astra_core.training.harness import Experience
from astra_core.training.trainer import Trainer


class ThoroughTrainer(Trainer):
    """Also evaluates the hardest prompts, widens its windows over time, and keeps every model."""

    metric_names = ("eval/hardest",)

    class Options(Section):
        """Options that the standard trainer does not have."""

        num_hardest: Count = Field(default=5, description="Dev prompts of eval/hardest.")
        widen_every: Count = Field(default=8, description="Training steps per further pass.")

    options: Options

    def examine(self, evaluator: Evaluator) -> dict[str, float]:
        """The usual figures, and the mean score of the prompts that do worst."""
        evaluation = evaluator.evaluate(self.sampler.system)
        scores = sorted(outcome.score_mean for outcome in evaluation.outcomes)
        hardest = scores[: self.options.num_hardest]
        return {**evaluation.metrics(), "eval/hardest": sum(hardest) / len(hardest)}

    def windows(self, experience: Experience) -> Iterator[list[Batch]]:
        """The usual micro-batches, more of them per update the longer the run."""
        passes = self.config.gradient_accumulation_steps
        passes += experience.iteration // self.options.widen_every
        size = passes * self.world.size
        batches = chain.from_iterable(super().windows(experience))
        while window := list(islice(batches, size)):
            yield window

    def save(self) -> None:
        """Saves a checkpoint, and beside it the model in a format that any tool can load."""
        super().save()
        if self.store is not None and self.world.is_first:
            name = f"model_{self.progress.training_step:06d}"
            with draft_folder_of(self.store.folder / name) as draft:
                self.sampler.system.attacker.save(draft)
