"""The contract of a trainer."""

import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from astra_core.config import (
    AlgorithmChoice,
    CheckpointConfiguration,
    Choice,
    EvaluationConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import PluginError
from astra_core.evaluator import Evaluator
from astra_core.extensions.calls import path_of
from astra_core.registry import build
from astra_core.seeding import torch_seeded
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.progress import StepReport
from astra_core.training.trainer import Trainer
from astra_parts.testing.contracts.common import (
    SEED,
    are_equal,
    class_of,
    models_of,
    options_of,
    promise,
    tree_sampler,
    weights_of,
)
from astra_parts.testing.tiny import tiny_language_model, tiny_prompts, tiny_system

_MOST_REPORTS = 1000


def check_trainer(
    plugin: str | type[Trainer], *, algorithm: str = "reinforce", **options: Any
) -> None:
    """Raises AssertionError unless a trainer may be named under ``training.trainer``.

    - Its options refuse unknown keys, and it is built as
      ``Class(config, sampler, algorithm, evaluator=, store=, first_graphs=, world=)``.
    - ``steps`` yields a ``StepReport`` per update, counted from 1, changes the attacker and ends
      with a reason in ``progress.stopped_because``. Target and reference stay as they are.
    - It evaluates at least once; an evaluation has ``training.metric``, finite, and every figure
      that its class declares in ``metric_names``.
    - ``dry_run`` changes nothing.
    - The same run again gives the same reports, evaluations and weights; so does one that was cut
      off in the second training step and resumed by new objects from what it had saved.

    Args:
        plugin: A built-in name, an import path or a file's, or the class.
        algorithm: The built-in algorithm whose loss it minimises, with default options.
    """
    found = class_of("trainer", plugin)
    options_of("trainer", found, options)
    config = TrainingConfiguration(
        trainer=Choice(name=path_of(found), options=options),
        algorithm=AlgorithmChoice(name=algorithm),
        training_steps=3,
        num_episodes_per_experience=2,
        batch_size=4,
        lr=0.01,
        eval_every=1,
        checkpoint=CheckpointConfiguration(save_every=1),
    )
    with TemporaryDirectory() as folder, torch_seeded(SEED):
        first = _trainer(found, config, Path(folder) / "first")
        reports = _check_run(first)
        second = _trainer(found, config, Path(folder) / "second")
        repeated = [report.row() for report in _steps(second)]
        promise(repeated == [report.row() for report in reports], "a run can be repeated")
        _check_same(first, second, "a run can be repeated")
        cut = _trainer(found, config, Path(folder) / "cut")
        # Kept to the end: closing it would run code that a kill does not.
        stream = _steps(cut)
        next((report for report in stream if report.training_step > 1), None)
        resumed = _trainer(found, config, Path(folder) / "cut")
        resumed.resume()
        list(_steps(resumed))
        _check_same(first, resumed, "a run that was cut off ends like one that was not")


def _trainer(plugin: type[Trainer], config: TrainingConfiguration, folder: Path) -> Trainer:
    """A trainer as a new process would build it."""
    system = tiny_system(SEED, target=tiny_language_model(SEED + 1))
    prompts = tiny_prompts(5)
    sampler = tree_sampler(system, prompts, num_responses=1)
    examination = EvaluationConfiguration(num_rollouts=2, depth=1, num_resamples=20)
    return plugin(
        config,
        sampler,
        build("algorithm", config.algorithm, system=system),
        evaluator=Evaluator(examination, prompts=prompts[:3], reward=sampler.reward, seed=SEED),
        store=CheckpointStore(folder, keep=config.checkpoint.keep),
        first_graphs=None,
        world=None,
    )


def _check_run(trainer: Trainer) -> list[StepReport]:
    """The reports of a whole run."""
    system = trainer.sampler.system
    start = weights_of(system)
    trainer.dry_run()
    promise(are_equal(start, weights_of(system)), "dry_run changes no weight")
    reports, has_moved = [], False
    for number, report in enumerate(_steps(trainer), start=1):
        holds = isinstance(report, StepReport)
        promise(holds, f"steps yields StepReports, got {type(report).__name__}")
        promise(report.step == number, f"updates are counted from 1, got {report.step}")
        reports.append(report)
        has_moved = has_moved or not are_equal(start, weights_of(system))
    promise(bool(reports), "steps yields a report per update, got none")
    promise(has_moved, "its updates change the attacker")
    num_own = len(list(models_of(system)[0].parameters()))
    frozen = weights_of(system)[num_own:]
    promise(are_equal(start[num_own:], frozen), "target and reference stay as they are")
    promise(bool(trainer.progress.stopped_because), "progress.stopped_because says why it ended")
    _check_evaluations(trainer)
    return reports


def _check_evaluations(trainer: Trainer) -> None:
    points = trainer.progress.evaluations
    promise(bool(points), "it evaluates at least once")
    for point in points:
        value = point.metrics.get(trainer.config.metric, math.nan)
        promise(math.isfinite(value), f"an evaluation has a finite {trainer.config.metric}")
        missing = sorted(set(getattr(trainer, "metric_names", ())) - set(point.metrics))
        promise(not missing, f"an evaluation has what metric_names declares, got none of {missing}")


def _steps(trainer: Trainer) -> Iterator[StepReport]:
    """The reports of a run that ends; an invalid result of its parts is a broken promise too."""
    try:
        for number, report in enumerate(trainer.steps()):
            promise(number < _MOST_REPORTS, "steps ends")
            yield report
    except PluginError as error:
        promise(holds=False, words=str(error))


def _check_same(trainer: Trainer, other: Trainer, words: str) -> None:
    same = are_equal(weights_of(trainer.sampler.system), weights_of(other.sampler.system))
    promise(same, f"{words}: with the same weights")
    promise(
        trainer.progress.evaluations == other.progress.evaluations,
        f"{words}: with the same evaluations",
    )
