"""A loop written by hand: its updates are counted and reported as the Trainer's own are.

Such a loop uses only a harness and an optimiser:

    for batch in self.harness.experience():
        loss, logs = self.harness.step(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

Hooks of the Trainer's optimiser show when an update begins and when it is done.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from astra_core.algorithm import Algorithm, Batch, loss_of
from astra_core.algorithms.movement import moved_means
from astra_core.config import KLConfiguration
from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Graph
from astra_core.training.harness import Experience
from astra_core.training.optimization.kl_control import is_beyond
from astra_core.training.progress import Progress
from astra_core.training.update import Update, Updates


@dataclass(frozen=True, slots=True)
class _Pass:
    """One batch of an update that is not done yet: its mean loss and its figures."""

    batch: Batch
    loss: float
    logs: dict[str, float]


class HandLoop:
    """Watches a Trainer's harness and optimiser while a custom loop drives them.

    Args:
        report: Gets each update, the experience it learned from, and whether it is the first.
        kl: The limits on how far an experience may move the attacker.
    """

    def __init__(
        self,
        updates: Updates,
        attacker: LanguageModel,
        *,
        progress: Callable[[], Progress],
        first_graphs: Sequence[Graph] | None,
        note: Callable[[Experience], None],
        report: Callable[[Update, Experience, bool], object],
        close: Callable[[Experience], object],
        kl: KLConfiguration,
    ) -> None:
        self._updates = updates
        self._attacker = attacker
        self._progress = progress
        self._first_graphs = first_graphs
        self._note = note
        self.on_experience: Callable[[Experience], object] = lambda _: None
        self._report = report
        self._close = close
        self._kl = kl
        self._scopes = ExitStack()
        self._passes: list[_Pass] = []
        self._begun: int | None = None
        self._counted: int | None = None
        self._is_iterated = False
        self._experience: Experience | None = None
        self._is_first = True
        self._norm, self._lr, self._start = 0.0, 0.0, 0.0
        updates.optimizer.register_step_pre_hook(self.before)
        updates.optimizer.register_step_post_hook(self.after)

    def begin(self) -> tuple[int, Sequence[Graph] | None]:
        """The next iteration, and its rollouts where they exist; the one before is learned.

        Raises ConfigurationError if the loop counts the training steps too.
        """
        self.end()
        iteration = self._progress().training_step
        self._require_count(self._counted)
        self._begun, self._is_iterated = iteration, False
        return iteration, self._first_graphs if iteration == 0 else None

    def note_experience(self, experience: Experience) -> None:
        """Notes the experience that is learned from."""
        self._experience, self._is_first = experience, True
        self.on_experience(experience)
        if self._begun is not None:
            self._note(experience)

    def note_batches(self, experience: Experience) -> None:
        """Notes that its batches are taken one by one, to the last."""
        self._is_iterated = self._begun == experience.iteration

    def note_division(self, experience: Experience) -> None:
        """Takes note of the experience that a harness of one's own made of what it was given."""
        if self._begun == experience.iteration:
            self._experience = experience

    def note_end(self, experience: Experience) -> None:
        """Counts a training step once all its batches were taken."""
        if self._begun == experience.iteration:
            self.end()

    def settle(self) -> None:
        """Closes an experience learned by windows, before the attacker is saved or evaluated."""
        self._scopes.close()
        if not self._is_iterated:
            self.end()

    def end(self) -> None:
        """Counts the experience that was begun, if it is not counted yet."""
        self._scopes.close()
        begun, self._begun = self._begun, None
        if begun is None:
            return
        self._require_count(begun)
        if self._experience is not None and self._experience.iteration == begun:
            self._close(self._experience)
        # A schedule that the loop made for itself takes precedence.
        if all(learner.is_as_scheduled for learner in self._updates.learners):
            self._updates.move_schedule()
        for learner in self._updates.learners:
            if not learner.is_as_scheduled:
                learner.require_no_schedule()
        self._counted = self._progress().training_step = begun + 1

    def _require_count(self, count: int | None) -> None:
        """Checks that nothing else has counted training steps."""
        if count not in {None, self._progress().training_step}:
            msg = (
                "a loop must count training steps once, got progress.training_step += 1 beside "
                "harness.experience(), which counts them; leave one out, or name the iteration as "
                "in harness.experience(self.progress.training_step)"
            )
            raise ConfigurationError(msg)

    def step(self, algorithm: Algorithm, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The mean loss of a batch, computed as in an update, and figures on it.

        Raises ConfigurationError if several agents learn, each by its own optimiser.
        """
        if self._updates.shards:
            msg = (
                "training.sharding must be 'none' for a loop by hand, whose passes differ from "
                "process to process, got 'full'; go through steps() instead"
            )
            raise ConfigurationError(msg)
        if len(self._updates.learners) > 1:
            names = [learner.name for learner in self._updates.learners]
            msg = (
                f"a loop by hand must have one attacker that learns, got system.agents {names}; "
                "go through steps() instead"
            )
            raise ConfigurationError(msg)
        plan = self._updates.plan
        if not self._passes:
            self._start = time.perf_counter()
            self._scopes.close()
            self._scopes.enter_context(plan.learns(self._attacker.model))
        with plan.autocast():
            loss, logs = loss_of(algorithm, batch)
        mean = loss / (batch.weight or 1.0)
        self._passes.append(_Pass(batch, float(mean.detach()), logs))
        return mean, logs

    def before(self, *_: Any) -> None:
        """Treats the gradients as in any update: frozen parts, clipping, and non-finite values."""
        if not self._passes or self._experience is None:
            return
        self._scopes.close()
        self._norm = self._updates.prepare(self._experience.iteration)
        # Where the KL control scales the rates, it has done so by now.
        self._lr = float(self._updates.optimizer.param_groups[0]["lr"])
        if not self._is_finite() or is_beyond(self._kl, self._figures()):
            self._updates.optimizer.zero_grad(set_to_none=True)

    def after(self, *_: Any) -> None:
        """Reports the update that is done."""
        if not self._passes or self._experience is None:
            return
        metrics, is_skipped = self._figures(), not self._is_finite()
        passes, self._passes = self._passes, []
        is_first, self._is_first = self._is_first, False
        update = Update(
            loss=_mean([each.loss for each in passes], passes),
            grad_norm=self._norm,
            lr=self._lr,
            num_tokens=sum(each.batch.num_tokens for each in passes),
            is_skipped=is_skipped,
            metrics=metrics,
            train_s=time.perf_counter() - self._start,
            is_cut=is_beyond(self._kl, metrics),
        )
        self._report(update, self._experience, is_first)

    def _figures(self) -> dict[str, float]:
        """Means of the update's figures, those of movement over its probes."""
        passes = self._passes
        names = sorted({name for each in passes for name in each.logs})
        return moved_means(
            {name: _mean([each.logs.get(name, 0.0) for each in passes], passes) for name in names}
        )

    def _is_finite(self) -> bool:
        losses = [each.loss for each in self._passes]
        return math.isfinite(self._norm) and all(map(math.isfinite, losses))


def _mean(values: Sequence[float], passes: Sequence[_Pass]) -> float:
    """The mean of a number of each pass, by the weights of their batches."""
    weights = [each.batch.weight for each in passes]
    # Not an exact sum, which rejects infinities of both signs.
    return sum(map(math.prod, zip(values, weights, strict=True))) / (sum(weights) or 1.0)
