"""The Trainer's own share of a training step, at the shape of GPT-2 small.

Random weights: only the shape affects the time. The model's time is that of sampling, forward
passes, losses and backward passes; what is neither that nor the scorer's is the Trainer's own, the
optimiser's update included. Counted is processor time on one thread, which another program on the
same machine does not change: wall clock gave shares between 1.8 and 6.2 % on a busy one.

``python -m benchmarks trainer_overhead`` prints the shares.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

from astra_core.config import AlgorithmChoice, EarlyStopping, KLConfiguration, TrainingConfiguration
from astra_core.registry import build
from astra_core.training.trainer import Trainer
from benchmarks.figures import Figure, Report
from benchmarks.shapes import GPT2_SMALL, Shape, prompts, sampler, system
from benchmarks.timing import Effort, threads

LIMIT_PERCENT = 3.0


class Stopwatch:
    """Seconds by name; a call inside another is counted once, for the inner one.

    Args:
        clock: Gives the time in seconds; by default processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._inner = [0.0]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to ``name``."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                spent = self._clock() - start
                own = spent - self._inner.pop()
                self._inner[-1] += spent
                self.add(name, own)

        return call

    def timed_entry(
        self, name: str, manager: Callable[..., AbstractContextManager[Any]]
    ) -> Callable[..., AbstractContextManager[Any]]:
        """The context manager, with the time of entering it added to ``name``."""

        @contextmanager
        def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with ExitStack() as stack:
                yield self.timed(name, stack.enter_context)(manager(*args, **kwargs))

        return timed

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds to ``name``."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def report(shape: Shape, effort: Effort) -> Report:
    """The shares of a step; the limit is promised for the shape of GPT-2 small."""
    del effort
    watch = Stopwatch()
    trainer = _trainer(shape)
    _watch(trainer, watch)
    backward = torch.Tensor.backward
    torch.Tensor.backward = watch.timed("model", backward)  # type: ignore[method-assign]
    try:
        with threads(1):
            total = _run(trainer, watch)
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
    update, norm = watch.seconds["optimizer"], watch.seconds["norm"]
    own = total - watch.seconds["model"] - watch.seconds["scorer"]
    share = f"share of a step, {shape.name}"
    limit = LIMIT_PERCENT if shape == GPT2_SMALL else None
    return Report(
        figures=[
            Figure(f"training step of 2 updates, {shape.name}", total, "s"),
            Figure(f"optimiser's update, {share}", 100 * update / total, "%"),
            Figure(f"norm of the gradients, {share}", 100 * norm / total, "%"),
            Figure(f"Trainer without the two, {share}", 100 * (own - update - norm) / total, "%"),
            Figure(f"Trainer's own time, {share}", 100 * own / total, "%", limit),
        ]
    )


def _run(trainer: Trainer, watch: Stopwatch) -> float:
    """Seconds of the last training step; the first warms caches and makes the optimiser's state."""
    start = 0.0
    for _ in trainer.steps():
        if trainer.progress.training_step == 1 and not start:
            watch.seconds.clear()
            start = time.process_time()
    return time.process_time() - start


def _watch(trainer: Trainer, watch: Stopwatch) -> None:
    system = trainer.sampler.system
    for model in (system.attacker, system.reference):
        for name, watched in (
            ("continuations", watch.timed),
            ("continuation_logprobs", watch.timed),
            ("remembering", watch.timed_entry),
        ):
            setattr(model, name, watched("model", getattr(model, name)))
    scorer, algorithm, optimizer = system.probe_scorer, trainer.algorithm, trainer.updates.optimizer
    scorer.score = watch.timed("scorer", scorer.score)  # type: ignore[method-assign]
    algorithm.step = watch.timed("model", algorithm.step)  # type: ignore[method-assign]
    trainer.updates.clip = watch.timed("norm", trainer.updates.clip)  # type: ignore[method-assign]
    begun: list[float] = []
    optimizer.register_step_pre_hook(lambda *_: begun.append(time.process_time()))
    optimizer.register_step_post_hook(
        lambda *_: watch.add("optimizer", time.process_time() - begun.pop())
    )


def _trainer(shape: Shape) -> Trainer:
    """Trees and pairs as in the other benchmarks, four at a time; nothing is saved or evaluated."""
    own = system(shape)
    grown = sampler(shape, own)
    grown.prompts = tuple(prompts(shape, 8))
    algorithm = AlgorithmChoice(name="dpo")
    training = TrainingConfiguration(
        algorithm=algorithm,
        training_steps=2,
        num_episodes_per_experience=4,
        lr=1e-6,
        # Random weights move far by any rate and are far from the reference from the start; an
        # update that is cut, or a run that ends before it, has no time.
        kl=KLConfiguration(max_per_experience_nats=None),
        early_stopping=EarlyStopping(max_kl_nats=None),
    )
    return Trainer(training, grown, build("algorithm", algorithm, system=own))
