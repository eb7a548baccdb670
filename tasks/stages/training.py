"""Stage ``training``: the attacker learns; killed at any moment, the same command goes on.

Where a run was is kept in ``runs/<digest of parameters, inputs and code>/``, outside of DVC's
reach: DVC deletes a stage's outputs before it starts.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.files import (
    draft_folder_of,
    file_digest,
    folder_digest,
    record_digest,
    write_text,
)
from tasks.machine.console import progress
from tasks.params.schema import RegistrationConfiguration
from tasks.pipeline.precision import FILE as PRECISION_FILE
from tasks.pipeline.precision import KEY as SYSTEM_PRECISION
from tasks.pipeline.precision import remembered
from tasks.pipeline.stage import Dep, Metric, Out, Plot, Untracked, plain_sections, stage
from tasks.records.journal import Journal, step_table
from tasks.records.models import read_manifest, read_model_paths
from tasks.records.prompts import read_prompts
from tasks.records.reports import write_record
from tasks.records.rollouts import ROLLOUTS_FILE, read_rollouts
from tasks.records.training import BestMeasured, Measured, TrainingRecord, TrainingSummary

if TYPE_CHECKING:
    from astra_core.training.distributed import World
    from astra_core.training.trainer import Trainer
    from tasks.tracking.runs import RunLog

RUNS = Path("runs")
PLUGINS = Path("plugins")


@dataclass(frozen=True, slots=True)
class TrainingParams:
    """What decides the training, and where it is recorded."""

    training_seed: int
    machine: MachineConfiguration
    system: SystemConfiguration
    rollouts: RolloutsConfiguration
    reward: Choice
    training: TrainingConfiguration
    evaluation: EvaluationConfiguration
    # Under what name a run is recorded: another name must not train again.
    registration: Untracked[RegistrationConfiguration]


@dataclass(frozen=True, slots=True)
class TrainingFiles:
    """Prompts, models and first rollouts, and where the attacker and the reports go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    baseline: Dep = Path("data/rollouts")
    attacker: Out = Path("models/attacker")
    steps: Plot = Path("reports/training_steps.csv")
    report: Metric = Path("reports/training.json")


@dataclass(frozen=True, slots=True)
class _Run:
    """A training that can be found again.

    Attributes:
        key: Digest of parameters, inputs and code.
        sections: The parameters as JSON.
        experiment: Where it is recorded.
    """

    key: str
    sections: Mapping[str, Any]
    experiment: str

    @property
    def folder(self) -> Path:
        """Where it was when it was killed."""
        return RUNS / self.key[:16]


@stage(
    code=(
        "tasks/stages/training.py",
        "tasks/pipeline/precision.py",
        "tasks/records/journal.py",
        "tasks/records/models.py",
        "tasks/records/prompt_table.py",
        "tasks/records/prompts.py",
        "tasks/records/reports.py",
        "tasks/records/rollouts.py",
        "tasks/records/training.py",
        "astra_core",
        "plugins",
    ),
    is_parallel=True,
)
def train_attacker(
    params: TrainingParams, files: TrainingFiles = TrainingFiles()
) -> TrainingSummary:
    """Trains the attacker, resuming where a killed run stopped, and exports what it learned.

    Of several processes that train together the first alone writes.
    """
    from astra_core.extensions.promises import reports_of
    from astra_core.models.pretrained import device_for
    from astra_core.training.distributed import World

    device = device_for(params.machine.device)
    world = World.join(device=device)
    run = _run(params, files, device=device.type, num_processes=world.size)
    trainer = _trainer(params, files, folder=run.folder, world=world)
    trainer.resume()
    # None begins to write while another still looks for a checkpoint.
    world.barrier()
    if world.is_first:
        _recorded(trainer, run, files.steps)
    else:
        deque(reports_of(trainer), maxlen=0)
    world.leave()
    summary = _summary(trainer)
    if world.is_first:
        digest = _export(trainer, summary, files.attacker, run_key=run.key)
        write_record(_record(trainer, summary, run_key=run.key, digest=digest), files.report)
    return summary


def _run(params: TrainingParams, files: TrainingFiles, *, device: str, num_processes: int) -> _Run:
    # As it is, not as it was asked for: another device or number of processes is another run.
    found = {"device": device, "num_processes": num_processes}
    machine = params.machine.model_copy(update=found)
    sections = plain_sections(replace(params, machine=machine))
    return _Run(_run_key(sections, files), sections, params.registration.experiment)


def _recorded(trainer: "Trainer", run: _Run, steps: Path) -> None:
    """Trains, and tells of every update in a journal, at the tracker and in a table."""
    from tasks.tracking.runs import ENGINE_TAG, open_run

    journal = Journal(run.folder / "steps.jsonl", last_step=trainer.progress.step)
    tags = {ENGINE_TAG: str(trainer.plan)}
    log = open_run(run.key, experiment=run.experiment, params=run.sections, tags=tags)
    try:
        _drive(trainer, journal, log)
    except BaseException:
        log.finish("FAILED")
        raise
    log.finish()
    evaluations = {point.step: point.metrics for point in trainer.progress.evaluations}
    write_text(step_table(journal.rows(), evaluations), steps)


def _export(trainer: "Trainer", summary: TrainingSummary, folder: Path, *, run_key: str) -> str:
    """Writes the trained attacker; the digest of its weights."""
    with draft_folder_of(folder) as draft:
        trainer.sampler.system.attacker.save(draft)
        digest = folder_digest(draft, keep=lambda path: path.suffix == ".safetensors")
        note = {
            "digest": digest,
            "run_key": run_key,
            "metric": summary.metric,
            "value": summary.value,
            "kept": summary.kept,
            "training_step": summary.training_step,
            SYSTEM_PRECISION: trainer.sampler.system.config.precision,
        }
        write_record(note, draft / "astra.json")
    return digest


def _drive(trainer: "Trainer", journal: Journal, log: "RunLog") -> None:
    from astra_core.extensions.promises import reports_of

    logged = 0
    total = trainer.config.training_steps
    done = trainer.progress.training_step
    with progress("training", total=total) as advance:
        advance(done)
        for report in reports_of(trainer):
            journal.add(report.row())
            log.log_step({**report.row(), **report.timings}, report.step)
            logged = _log_evaluations(trainer, log, logged)
            advance(report.training_step - 1 - done)
            done = report.training_step - 1
        advance(total - done)
    _log_evaluations(trainer, log, logged)


def _log_evaluations(trainer: "Trainer", log: "RunLog", logged: int) -> int:
    """Logs the evaluations that are new and returns how many there are."""
    points = trainer.progress.evaluations
    for point in points[logged:]:
        log.log_step(point.metrics, point.step)
    return len(points)


def _trainer(
    params: TrainingParams, files: TrainingFiles, *, folder: Path, world: "World"
) -> "Trainer":
    from astra_core.assembly import (
        ModelFolders,
        build_evaluator,
        build_sampler,
        build_trainer,
        load_system,
    )
    from astra_core.training.checkpoint import CheckpointStore

    training, reward, seed = params.training, params.reward, params.training_seed
    system = remembered(params.system, files.baseline / PRECISION_FILE)
    folders = ModelFolders.of(read_model_paths(files.base))
    loaded = load_system(system, folders, machine=params.machine, is_trained=True)
    prompts = read_prompts(files.valid / "train.parquet")
    limit = params.evaluation.num_training_prompts
    dev = read_prompts(files.valid / "dev.parquet", limit=limit)
    return build_trainer(
        training,
        build_sampler(params.rollouts, reward, system=loaded, prompts=prompts, seed=seed),
        evaluator=build_evaluator(params.evaluation, reward, prompts=dev, seed=seed),
        store=CheckpointStore(folder / "checkpoints", keep=training.checkpoint.keep),
        first_graphs=read_rollouts(files.baseline / ROLLOUTS_FILE),
        world=world,
    )


def _run_key(sections: Mapping[str, Any], files: TrainingFiles) -> str:
    """Names a run: the same parameters, inputs and code go on where they were."""
    root = Path(__file__).resolve().parents[2]
    # Of plug-ins too: an edited one must begin anew, not export what the unedited one had learned.
    code = [
        folder_digest(root / "astra_core", keep=lambda file: file.suffix == ".py"),
        folder_digest(PLUGINS, keep=lambda file: file.suffix not in {".pyc", ".md"}),
    ]
    inputs = [
        file_digest(files.valid / "train.parquet"),
        file_digest(files.valid / "dev.parquet"),
        file_digest(files.baseline / ROLLOUTS_FILE),
        read_manifest(files.base).digests(),
    ]
    return record_digest([dict(sections), inputs, code])


def _summary(trainer: "Trainer") -> TrainingSummary:
    """How it went, and what the exported attacker scores where it was evaluated."""
    progress, best, metric = trainer.progress, trainer.best, trainer.config.metric
    points = progress.evaluations
    is_best = trainer.scheme.keeps_best and bool(best.model)
    is_known = is_best or bool(points and points[-1].step == progress.step)
    last = points[-1].metrics[metric] if points else None
    return TrainingSummary(
        training_steps=progress.training_step,
        optimizer_steps=progress.step,
        metric=metric,
        first=points[0].metrics[metric] if points and not points[0].step else None,
        value=(best.value if is_best else last) if is_known else None,
        kept="best" if is_best else "last",
        training_step=best.training_step if is_best else progress.training_step,
        stopped_because=progress.stopped_because,
    )


def _record(
    trainer: "Trainer", summary: TrainingSummary, *, run_key: str, digest: str
) -> TrainingRecord:
    progress, best, metric = trainer.progress, trainer.best, summary.metric
    is_examined = bool(progress.evaluations)
    return TrainingRecord(
        run_key=run_key,
        checkpoint_digest=digest,
        training_steps=summary.training_steps,
        optimizer_steps=summary.optimizer_steps,
        engine=str(trainer.plan),
        training_precision=trainer.config.precision,
        system_precision=trainer.sampler.system.config.precision,
        num_nonfinite=progress.num_nonfinite,
        num_empty_experiences=progress.num_empty,
        stopped_because=summary.stopped_because,
        kept=summary.kept,
        first=None if summary.first is None else Measured(metric, summary.first),
        best=BestMeasured(metric, best.value, best.training_step) if is_examined else None,
        evaluations=tuple(
            {"training_step": point.training_step, "step": point.step, **point.metrics}
            for point in progress.evaluations
        ),
    )
