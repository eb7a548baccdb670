"""The Trainer: a generator of reports on optimiser steps; its caller logs and displays them.

One training step collects one experience and learns from it in one or more optimiser updates. The
loss of an update is the sum over its whole window of micro-batches divided by the window's
weight, so the result does not depend on the size and order of micro-batches or on a short last
window. A window never spans two policies.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from astra_core.algorithm import Algorithm, Batch
from astra_core.config import Section, SystemConfiguration, TrainingConfiguration
from astra_core.engine.memory import peak_memory
from astra_core.engine.plan import Plan
from astra_core.errors import BudgetError, ConfigurationError
from astra_core.evaluator import Evaluator
from astra_core.extensions.calls import rename_arguments
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Graph
from astra_core.sampler import Sampler
from astra_core.system import System
from astra_core.training.by_hand import HandLoop
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.distribution.distributed import World
from astra_core.training.harness import Experience, Harness
from astra_core.training.learner import make_trainable
from astra_core.training.optimization.kl_control import measure_move
from astra_core.training.progress import (
    EvaluationPoint,
    Progress,
    Reports,
    StepReport,
    own_figures,
    progress_bar,
    reports_of,
)
from astra_core.training.resume.policy import as_begun
from astra_core.training.resume.resuming import resume
from astra_core.training.resume.state import RunState
from astra_core.training.selection.ending import Ending
from astra_core.training.selection.evaluation_scheme import (
    EvaluationScheme,
    KeptModels,
    check_evaluations,
    examine,
)
from astra_core.training.selection.stopping import Best
from astra_core.training.staged import TrainerPlace, TrainerStage, walk
from astra_core.training.team import build_algorithm, check_team
from astra_core.training.trial import Trial, try_batch
from astra_core.training.update import Update, Updates, learning_plan, refuse_many_nonfinite

__all__ = ["EvaluationPoint", "Progress", "StepReport", "Trainer"]


class Trainer:
    """Optimises the sampler's attacker with an algorithm's loss.

    A custom Trainer overrides ``examine``, ``windows``, ``check_system``, ``stages``, ``save``,
    ``end``, ``steps`` or ``train``, and has its own ``Options``, available as ``self.options``; see
    docs/extending.md.

    Args:
        config: What to do; the optimiser and the schedule are built from it.
        sampler: Has the System, the prompts, the reward and the seed; also as ``environment``.
        evaluator: Without one, or with ``training.evaluate: none``, there is no evaluation, no best
            checkpoint and no patience. A loop of one's own may call it in either case.
        first_graphs: Rollouts of the untrained attacker, learned from in the first training step.
        world: The processes that train together; None for this one alone.
    """

    Options = Section

    @rename_arguments(environment="sampler")
    def __init__(
        self,
        config: TrainingConfiguration,
        sampler: Sampler,
        algorithm: Algorithm,
        *,
        evaluator: Evaluator | None = None,
        store: CheckpointStore | None = None,
        first_graphs: Sequence[Graph] | None = None,
        world: World | None = None,
    ) -> None:
        self.world = world or World()
        check_evaluations(config, type(self), is_evaluated=evaluator is not None, world=self.world)
        check_team(config, sampler, algorithm, world=self.world)
        model = sampler.system.attacker.model
        config = self.config = as_begun(config, model, store=store, world=self.world)
        where = "training.trainer.options"
        self.options = type(self).Options.read(config.trainer.options, where=where)
        self.check_system(self.options, sampler.system.config, config)
        self.sampler = sampler
        self.algorithm = algorithm
        self.scheme = EvaluationScheme(config)
        self.evaluator = evaluator
        self.store = store
        self.progress = Progress()
        self.best = Best(metric=config.metric, mode=config.mode)
        self.reports = Reports()
        self._first_graphs = first_graphs
        make_trainable(sampler.system, config, seed=sampler.seed)
        agents = sampler.system.agents
        self.updates = Updates(config, algorithm, self._attacker, world=self.world, agents=agents)
        self.by_hand = HandLoop(
            self.updates,
            self._attacker,
            progress=lambda: self.progress,
            first_graphs=first_graphs,
            note=self._note,
            report=self._note_update,
            close=self._close,
            kl=config.kl,
        )
        self.harness = Harness.of(config, sampler, algorithm, world=self.world)
        self.ending = Ending(config.early_stopping, world=self.world)
        self._state = RunState(config, sampler, algorithm, updates=self.updates, trainer=self)
        self._kept = KeptModels(self.best, self._state, store=store, world=self.world)
        self.place: TrainerPlace | None = None
        self._experience: Experience
        self._eval_s = 0.0
        self._is_cut = False

    @classmethod
    def check_system(
        cls, options: Section, system: SystemConfiguration, training: TrainingConfiguration
    ) -> None:
        """Raises ConfigurationError if it cannot train such a system; loads no weights."""

    @classmethod
    def algorithm_for(cls, config: TrainingConfiguration, system: System) -> Algorithm:
        """The configured algorithm; for several agents one that combines theirs."""
        return build_algorithm(config, system)

    @property
    def harness(self) -> Harness:
        """The harness that collects experience; a hand-written loop over another one counts too."""
        return self._harness

    @harness.setter
    def harness(self, harness: Harness) -> None:
        self._harness = harness
        harness.watcher = self.by_hand

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser that ``training.optimizer`` names, whose state is in the checkpoints."""
        return self.updates.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        msg = (
            f"{type(self).__name__}.optimizer must be built by the Trainer, got a "
            f"{type(optimizer).__name__}; name it in training.optimizer, its class if it is no "
            "built-in"
        )
        raise ConfigurationError(msg)

    @property
    def plan(self) -> Plan:
        """How the attacker is run, in rollouts and while it learns."""
        return learning_plan(self.sampler.system.attacker, self.config)

    def train(self, on_step: Callable[[StepReport], None] | None = None) -> Progress:
        """Runs all ``steps`` and returns the progress; the attacker is then the one that is kept.

        On a terminal, a bar shows how many of the training steps are done.
        """
        done = self.progress.training_step
        with progress_bar("training", total=self.config.training_steps, done=done) as show:
            for report in reports_of(self):
                show(self.progress.training_step)
                self.reports.note(report)
                self.reports.flush()
                if on_step is not None:
                    on_step(report)
        return self.progress

    def resume(self) -> bool:
        """Resumes as ``training.checkpoint.resume`` says; True if there was a state to load.

        What may differ from the checkpoint: see ``astra_core.training.resume.policy``.

        Raises CheckpointError if the checkpoints are damaged, or of another run than this.
        """
        return resume(self, self._state)

    def dry_run(
        self, graphs: Sequence[Graph] | None = None, *, batch_size: int | None = None
    ) -> Trial:
        """One batch rolled out, read and differentiated, without changing any state.

        Args:
            graphs: Rollouts to learn from; None takes those that the training begins with.
            batch_size: Its rows; by default ``training.batch_size``.

        Raises TrainingError if the loss or a gradient is not finite, or there is nothing to learn.
        """
        return try_batch(
            self.harness,
            self.updates,
            graphs=self._first_graphs if graphs is None else graphs,
            batch_size=batch_size or self.config.batch_size,
        )

    def steps(self) -> Iterator[StepReport]:
        """One report per optimiser update, from where the loaded state stopped.

        However the run ended, its last weights are then evaluated, the newest state is saved and
        the attacker has the weights that ``training.evaluate`` and ``training.keep`` ask for.

        Raises TrainingError if too many updates met a NaN or an infinity.
        """
        self.ending.stopping.start()
        is_new = not self.progress.stopped_because
        if is_new:
            self.begin()
        while not self.progress.stopped_because:
            updates = walk(self.place, self.stages(), self.progress.training_step)
            yield from self.ending.within_budget(updates)
            spent = self.ending.spent_budget(self.progress)
            self.progress.stopped_because = spent or self.world.first_says(self.end())
            is_due = self.progress.training_step % self.config.checkpoint.save_every == 0
            if is_due and not self.progress.stopped_because:
                self.save()
        was_examined = self.evaluator is None or self.scheme.is_satisfied(self.progress)
        if not was_examined:
            self.evaluate()
        if is_new or not was_examined:
            self.save()
        self.restore_best()

    def begin(self) -> None:
        """Evaluates the untrained attacker, if that is asked for, and saves it."""
        if not self.progress.training_step and not self.progress.evaluations:
            if self.scheme.has_first:
                self.evaluate()
            self.save()

    def stages(self) -> Sequence[TrainerStage]:
        """Sampling, learning, evaluating; the loop around them saves. They yield the reports."""
        return (
            TrainerStage("sample", self._sample),
            TrainerStage("train", self._train),
            TrainerStage("evaluate", self._end_iteration),
            TrainerStage("save", lambda _: None),
        )

    def _sample(self, iteration: int) -> None:
        graphs = self._first_graphs if iteration == 0 else None
        self._experience = self.harness.experience(iteration, graphs=graphs)
        if self.world.size > 1:
            self.world.check_equal(self._experience.digest(), "the experience of a training step")
        self._note(self._experience)

    def _train(self, _: int) -> Iterator[StepReport]:
        """The updates but the last, which waits for the evaluation."""
        self._last: StepReport | None = None
        for window in self.windows(self._experience):
            if self.ending.spent_budget(self.progress):
                self.progress.is_partial = True
                break
            if self._last is not None:
                yield self._last
            is_first = self._last is None
            self._last = self.update(window, self._experience, is_first=is_first)
            if self._is_cut:
                break

    def _end_iteration(self, iteration: int) -> Iterator[StepReport]:
        if (last := self._last) is not None:
            self._close(self._experience)
        if last is not None or not self.progress.is_partial:
            self.updates.move_schedule()
            self.progress.training_step = iteration + 1
            self._evaluate_if_due()
        if last is not None:
            peaks = peak_memory(self._attacker.device, before=last.timings)
            timings = {**last.timings, **peaks, "time/eval_s": self._eval_s}
            self._eval_s = 0.0
            metrics = {**last.metrics, **self.progress.moves[-1].figures()}
            yield replace(last, timings=timings, metrics=metrics)

    def _close(self, experience: Experience) -> None:
        """Measures how far an experience moved the attacker."""
        system, is_cut = self.sampler.system, self._is_cut
        move = measure_move(system, experience, is_cut=is_cut, world=self.world)
        self.progress.moves.append(move)

    def _note(self, experience: Experience) -> None:
        self._is_cut = False
        self.progress.note(experience.metrics, is_empty=not experience.steps)
        self.ending.stopping.note(experience.metrics)

    def _evaluate_if_due(self) -> None:
        is_due = self.scheme.is_due(self.progress.training_step)
        if is_due or (self.scheme.has_last and self.ending.spent_budget(self.progress)):
            self.evaluate()

    def windows(self, experience: Experience) -> Iterator[list[Batch]]:
        """Windows of micro-batches, one per update; a short last one is kept."""
        rows = self.config.batch_size
        most = rows * self.config.gradient_accumulation_steps * self.world.size
        size = self.harness.update_size(experience, most=most)
        for epoch in range(self.config.epochs_per_experience):
            own = self.harness.batches(experience, epoch=epoch, batch_size=rows, update_size=size)
            while window := list(islice(own, math.ceil(size / rows))):
                yield window

    def update(
        self, window: Sequence[Batch], experience: Experience, *, is_first: bool = True
    ) -> StepReport:
        """One optimiser update; ``is_first`` adds the experience's own seconds to it."""
        step = self.progress.step + 1
        is_dumped = step in self.config.dump_steps and self.world.is_first
        dump = self.store.dump(step) if self.store is not None and is_dumped else None
        update = self.updates.apply(window, training_step=experience.iteration, dump=dump)
        return self._note_update(update, experience, is_first)

    def _note_update(self, update: Update, experience: Experience, is_first: bool) -> StepReport:
        """The report of an update that was made."""
        self.progress.step += 1
        self._is_cut = update.is_cut
        self.progress.num_nonfinite += int(update.is_skipped)
        limit = self.config.max_nonfinite_steps
        refuse_many_nonfinite(self.progress.num_nonfinite, limit=limit, last=update)
        memory = {**peak_memory(self._attacker.device), **self.updates.memory()}
        report = update.report(self.progress.step, experience, memory, is_first=is_first)
        report = replace(report, metrics={**report.metrics, **own_figures(self)})
        self.reports.note(report)
        return report

    def figures(self) -> Mapping[str, float]:
        """A custom trainer's figures on the last update, logged as ``trainer/name``."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """The further state of a custom trainer for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what ``state`` returned."""

    def end(self) -> str:
        """Why the run ends now, in words; empty while it continues."""
        steps = self.config.training_steps
        return self.ending.reason(self.progress, self.best, training_steps=steps)

    def evaluate(self) -> None:
        """Evaluates the present attacker, and saves it if it is the best so far."""
        self.by_hand.settle()
        if self.evaluator is None or self.config.evaluate == "none":
            return
        start, progress = time.perf_counter(), self.progress
        try:
            metrics, done = examine(self), progress.training_step
        except BudgetError as error:
            self.ending.unpaid = str(error)
            return
        self.updates.follow(metrics)
        progress.evaluations.append(EvaluationPoint(done, progress.step, metrics))
        self._kept.offer(metrics, done, min_delta=self.config.early_stopping.min_delta)
        seconds = time.perf_counter() - start
        self._eval_s += seconds
        self.reports.add_evaluation(seconds)

    def examine(self, evaluator: Evaluator) -> dict[str, float]:
        """The figures of the present attacker; equal weights give equal figures."""
        shared = {"ranks": self.world} if self.world.size > 1 else {}
        return evaluator.evaluate(self.sampler.system, **shared).metrics()

    def restore_best(self) -> None:
        """Puts the best weights into the attacker and checks that they score the same as before.

        Does nothing where the last are kept.
        """
        if self.evaluator is not None and self.scheme.keeps_best:
            self._kept.put_back(lambda: examine(self)[self.config.metric])

    def close(self) -> None:
        """Takes back what a trainer leaves at a server while it runs; nothing here.

        Called where it was not trained to its end, as by ``astra trial``.
        """

    def save(self) -> None:
        """Writes a checkpoint of the run as it is now."""
        self.by_hand.settle()
        self.harness.settle()
        self.reports.flush()
        writers = self.world if self.updates.shards else World()
        if self.store is not None and (self.world.is_first or self.updates.shards):
            found = self._state.checkpoint(self.progress, self.best, self.ending.stopping)
            self.store.save(found, world=writers)
        self.world.barrier()

    @property
    def _attacker(self) -> LanguageModel:
        return self.sampler.system.attacker
