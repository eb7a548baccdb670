"""Stage ``training``: the attacker learns; after a kill the same command resumes.

A run keeps its state in ``runs/<digest of parameters, inputs and code>/``, which DVC does not know:
DVC deletes a stage's outputs before it starts. The final state is an output too: a run with more
training steps continues from it, also in another clone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from astra_core.config import EvaluationConfiguration
from astra_core.errors import GateError
from astra_core.files import draft_folder_of, write_text
from astra_core.target import checked_figures
from tasks.findings.archive import training_kept
from tasks.machine.console import progress
from tasks.params.schema import RegistrationConfiguration, RunTraining, TrackingConfiguration
from tasks.pipeline.continuing import take_over_last
from tasks.pipeline.precision import FILE as PRECISION_FILE
from tasks.pipeline.setup import RolloutsParams
from tasks.pipeline.stage import Dep, Out, Plot, Untracked, plain_sections, stage
from tasks.pipeline.training_run import TrainingInputs, TrainingRun
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.checkpoint import (
    CHECKPOINTS,
    JOURNAL,
    CheckpointNote,
    Journal,
    step_table,
    write_checkpoint,
)
from tasks.records.prompts import read_prompts
from tasks.records.reports import write_record
from tasks.records.rollouts import ROLLOUTS_FILE, StoredRollouts
from tasks.records.signal import missing_signal
from tasks.records.training import TrainingSummary, record_of, summary_of

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluator
    from astra_core.rollout import Graph
    from astra_core.training.distribution.distributed import World
    from astra_core.training.progress import StepReport
    from astra_core.training.trainer import Trainer
    from tasks.tracking.sinks import Sinks

SUCCESS, SCORE = "eval/attack_success_rate", "rollout/score"

# The trainers that learn from what they roll out themselves; one of a project's own may not.
_LEARN_BY_ROLLOUTS = ("trainer", "remote", "vllm")


@dataclass(frozen=True, slots=True)
class TrainingParams(RolloutsParams):
    """The sections that decide the training, and where it is recorded."""

    training: RunTraining
    evaluation: EvaluationConfiguration
    # Where a run is recorded, and under what name: a change of it must not train again.
    registration: Untracked[RegistrationConfiguration]
    tracking: Untracked[TrackingConfiguration]


@dataclass(frozen=True, slots=True)
class TrainingFiles:
    """Prompts, models and first rollouts, and where the attacker and the reports go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    baseline: Dep = Path("data/rollouts")
    attacker: Out = Path("models/attacker")
    checkpoint: Out = Path("models/checkpoint")
    steps: Plot = Path("reports/training_steps.csv")
    report: Out = Path("reports/training.json")


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """The run, its trainer where the run stands, and the sinks that record it.

    If several processes train together, only the first has sinks.
    """

    run: TrainingRun
    trainer: "Trainer"
    log: "Sinks"

    @classmethod
    def of(cls, params: TrainingParams, files: TrainingFiles = TrainingFiles()) -> Self:
        """Loads the models, and the state that a killed run or the last output left.

        Raises GateError if the first rollouts have no signal to learn from.
        """
        from astra_core.models.pretrained import device_for
        from astra_core.training.distribution.distributed import World

        device = device_for(params.machine.device)
        world = World.join(device=device)
        run = _run(params, files, device=device.type, num_processes=world.size)
        if world.is_first:
            take_over_last(
                files.checkpoint, run.folder, params.training, updates_key=run.updates_key
            )
        world.barrier()
        first = StoredRollouts(files.baseline / ROLLOUTS_FILE)
        _require_signal(first, params)
        trainer = trainer_of(
            params,
            files,
            folder=run.folder,
            evaluator=evaluator_of(params, files),
            first_graphs=first,
            world=world,
        )
        trainer.resume()
        # No process begins to write while another still looks for a checkpoint.
        world.barrier()
        return cls(run, trainer, _sinks(params, run, trainer))


@stage(is_parallel=True)
def train_attacker(setup: TrainingSetup, files: TrainingFiles = TrainingFiles()) -> TrainingSummary:
    """Trains the attacker, resuming where a killed run stopped, and exports it.

    If several processes train together, only the first one writes.
    """
    from astra_core.training.driving import drive

    run, trainer = setup.run, setup.trainer
    world = trainer.world
    target, threshold = trainer.sampler.system.target, run.sections["evaluation"]["threshold"]
    with target.account_for(f"training {run.key[:16]}"):
        if world.is_first:
            with training_kept(trainer, run.key, threshold=threshold):
                _train_and_record(setup, files.steps)
        else:
            drive(trainer, lambda _: None)
        used = checked_figures(target)
    world.leave()
    summary = summary_of(trainer)
    if world.is_first:
        digest = _export(trainer, summary, files.attacker, run_key=run.key)
        note = CheckpointNote.of(trainer, updates_key=run.updates_key)
        write_checkpoint(note, run.folder, files.checkpoint)
        written = record_of(trainer, summary, run_key=run.key, digest=digest, parent=run.parent)
        write_record(replace(written, target=used or None), files.report)
    return summary


def _run(
    params: TrainingParams, files: TrainingFiles, *, device: str, num_processes: int
) -> TrainingRun:
    # The device that was found, not the one asked for: on another device it is another run.
    found = {"device": device, "num_processes": num_processes}
    machine = params.machine.model_copy(update=found)
    return TrainingRun.of(
        plain_sections(replace(params, machine=machine)),
        TrainingInputs(files.valid, files.base, files.baseline),
    )


def _sinks(params: TrainingParams, run: TrainingRun, trainer: "Trainer") -> "Sinks":
    from tasks.tracking.runs import ENGINE_TAG
    from tasks.tracking.sinks import Sinks, open_sinks

    if not trainer.world.is_first:
        return Sinks({})
    return open_sinks(
        params.tracking,
        run.key,
        experiment=params.registration.experiment,
        params=run.sections,
        tags={ENGINE_TAG: str(trainer.plan), **(run.parent.tags() if run.parent else {})},
    )


def _train_and_record(setup: TrainingSetup, steps: Path) -> None:
    """Trains, and records every update in a journal, in the sinks and in a table."""
    trainer, log = setup.trainer, setup.log
    try:
        journal = Journal(setup.run.folder / JOURNAL, last_step=trainer.progress.step)
        # What a killed try did not send; each sink leaves out what it has.
        for row in journal.rows():
            log.log_step(row, row["step"])
        _drive(trainer, journal, log)
    except BaseException:
        log.finish("FAILED")
        raise
    log.finish()
    evaluations = {point.step: point.metrics for point in trainer.progress.evaluations}
    write_text(step_table(journal.rows(), evaluations), steps)


def _export(trainer: "Trainer", summary: TrainingSummary, folder: Path, *, run_key: str) -> str:
    """The digest of the trained attacker, its weights and its agents, after it is written."""
    from astra_core.models.folders import attacker_digest

    with draft_folder_of(folder) as draft:
        trainer.sampler.system.save(draft)
        digest = attacker_digest(draft)
        note = AttackerNote(
            digest,
            run_key=run_key,
            metric=summary.metric,
            value=summary.value,
            kept=summary.kept,
            training_step=summary.training_step,
            system_precision=trainer.sampler.system.config.precision,
        )
        write_record(note, draft / ATTACKER_FILE)
    return digest


def _drive(trainer: "Trainer", journal: Journal, log: "Sinks") -> None:
    from astra_core.training.driving import drive

    logged = 0
    total = trainer.config.training_steps
    done = trainer.progress.training_step

    def hear(report: "StepReport") -> None:
        nonlocal logged, done
        journal.add(report.row())
        # Evaluations first: a sink may need its steps in order, and the first one is of step 0.
        logged = _log_evaluations(trainer, log, logged)
        log.log_step({**report.row(), **report.timings}, report.step)
        advance(report.training_step - 1 - done, note=_so_far(trainer, report))
        done = report.training_step - 1

    with progress("training", total=total) as advance:
        advance(done)
        drive(trainer, hear)
        advance(total - done)
    _log_evaluations(trainer, log, logged)


def _so_far(trainer: "Trainer", report: "StepReport") -> str:
    """The attacker's success so far: its last evaluation, or the scores that it learns from."""
    points = trainer.progress.evaluations
    if points and SUCCESS in points[-1].metrics:
        return f"success {points[-1].metrics[SUCCESS]:.0%}"
    return f"score {report.metrics[SCORE]:.2f}" if SCORE in report.metrics else ""


def _log_evaluations(trainer: "Trainer", log: "Sinks", logged: int) -> int:
    """The number of evaluations, after the new ones are logged."""
    points = trainer.progress.evaluations
    for point in points[logged:]:
        log.log_step(point.metrics, point.step)
    return len(points)


def evaluator_of(
    params: TrainingParams, files: TrainingFiles, *, limit: int | None = None
) -> "Evaluator":
    """The evaluation on the dev prompts that chooses the attacker."""
    from astra_parts.assembly import build_evaluator

    limit = limit or params.evaluation.num_training_prompts
    prompts = read_prompts(files.valid / "dev.parquet", limit=limit)
    seed = params.training_seed
    return build_evaluator(params.evaluation, params.reward, prompts=prompts, seed=seed)


def trainer_of(
    params: TrainingParams,
    files: TrainingFiles,
    *,
    folder: Path,
    evaluator: "Evaluator | None" = None,
    first_graphs: "Sequence[Graph] | None" = None,
    world: "World | None" = None,
) -> "Trainer":
    """The trainer on the training prompts, which keeps its state in a folder."""
    from astra_core.training.checkpoint import CheckpointStore
    from astra_parts.assembly import build_trainer

    prompts = read_prompts(files.valid / "train.parquet")
    settled = params.with_precision(files.baseline / PRECISION_FILE)
    return build_trainer(
        params.training,
        settled.sampler(files.base, prompts, is_trained=True),
        evaluator=evaluator,
        store=CheckpointStore(folder / CHECKPOINTS, keep=params.training.checkpoint.keep),
        first_graphs=first_graphs,
        world=world,
    )


def _require_signal(first: StoredRollouts, params: TrainingParams) -> None:
    """Checks that the first rollouts can be learned from, if that is asked for."""
    # What a trainer without rollouts of its own learns from is not in these.
    if not params.training.require_signal or params.training.trainer.name not in _LEARN_BY_ROLLOUTS:
        return
    missing = missing_signal(first, threshold=params.evaluation.threshold)
    if missing:
        msg = (
            f"training must begin with rollouts that have a signal, got {missing}; "
            "training.require_signal: false trains all the same"
        )
        raise GateError(msg)
