"""Stage ``training``: the attacker learns; killed at any moment, the same command goes on.

Where a run was is kept in ``runs/<digest of parameters, inputs and code>/``, outside of DVC's
reach: DVC deletes a stage's outputs before it starts.
"""

from collections import deque
from dataclasses import dataclass
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
from astra_core.errors import TrainingError
from astra_core.files import (
    draft_folder_of,
    file_digest,
    folder_digest,
    record_digest,
    write_json,
    write_text,
)
from tasks.machine.console import progress
from tasks.params.schema import PARAMS_FILE, Params, read_params
from tasks.pipeline.precision import FILE as PRECISION_FILE
from tasks.pipeline.precision import KEY as SYSTEM_PRECISION
from tasks.pipeline.precision import remembered
from tasks.pipeline.stage import Dep, Metric, Out, Plot, stage
from tasks.records.journal import Journal, step_table
from tasks.records.tables import (
    ROLLOUTS_FILE,
    finite,
    read_manifest,
    read_model_paths,
    read_prompts,
    read_rollouts,
)

if TYPE_CHECKING:
    from astra_core.training.distributed import World
    from astra_core.training.trainer import StepReport, Trainer
    from tasks.tracking.runs import RunLog

RUNS = Path("runs")
PLUGINS = Path("plugins")


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


@stage(
    code=(
        "tasks/stages/training.py",
        "tasks/pipeline/precision.py",
        "tasks/records/journal.py",
        "tasks/records/tables.py",
        "astra_core",
        "plugins",
    ),
    is_parallel=True,
)
def train_attacker(
    training_seed: int,
    machine: MachineConfiguration,
    system: SystemConfiguration,
    rollouts: RolloutsConfiguration,
    reward: Choice,
    training: TrainingConfiguration,
    evaluation: EvaluationConfiguration,
    *,
    valid: Dep = Path("data/valid"),
    base: Dep = Path("models/base"),
    baseline: Dep = Path("data/rollouts"),
    attacker: Out = Path("models/attacker"),
    steps: Plot = Path("reports/training_steps.csv"),
    report: Metric = Path("reports/training.json"),
) -> TrainingSummary:
    """Trains the attacker, resuming where a killed run stopped, and exports the best one.

    Of several processes that train together the first alone writes.
    """
    from astra_core.extensions.promises import reports_of
    from astra_core.models.pretrained import device_for
    from astra_core.training.distributed import World

    device = device_for(machine.device)
    world = World.join(device=device)
    sections = {
        "training_seed": training_seed,
        # As it is, not as it was asked for: another device or number of processes is another run.
        "machine": {
            **machine.model_dump(mode="json"),
            "device": device.type,
            "num_processes": world.size,
        },
        "system": system.model_dump(mode="json"),
        "rollouts": rollouts.model_dump(mode="json"),
        "reward": reward.model_dump(mode="json"),
        "training": training.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    run_key = _run_key(sections, valid=valid, base=base, baseline=baseline)
    folder = RUNS / run_key[:16]
    trainer = _trainer(
        training_seed, machine, remembered(system, baseline / PRECISION_FILE), rollouts, reward,
        training, evaluation, valid=valid, base=base, baseline=baseline, folder=folder, world=world,
    )  # fmt: skip
    trainer.resume()
    # None begins to write while another still looks for a checkpoint.
    world.barrier()
    if world.is_first:
        _recorded(trainer, folder / "steps.jsonl", run_key, sections, steps=steps)
    else:
        deque(reports_of(trainer), maxlen=0)
    world.leave()
    summary = _summary(trainer, training)
    if world.is_first:
        digest = _export(trainer, summary, run_key, attacker)
        write_json(finite(_record(trainer, summary, run_key, digest)), report)
    return summary


def _recorded(
    trainer: "Trainer", path: Path, run_key: str, sections: dict[str, Any], *, steps: Path
) -> None:
    """Trains, and tells of every update in a journal, at the tracker and in a table."""
    journal = Journal(path, last_step=trainer.progress.step)
    log = _open_run(run_key, sections, engine=str(trainer.plan))
    try:
        _drive(trainer, journal, log)
    except BaseException:
        log.finish("FAILED")
        raise
    log.finish()
    evaluations = {point.step: point.metrics for point in trainer.progress.evaluations}
    write_text(step_table(journal.rows(), evaluations), steps)


def _export(trainer: "Trainer", summary: TrainingSummary, run_key: str, folder: Path) -> str:
    """Writes the trained attacker; the digest of its weights."""
    with draft_folder_of(folder) as draft:
        trainer.sampler.system.attacker.save(draft)
        digest = folder_digest(draft, keep=lambda path: path.suffix == ".safetensors")
        note = {
            "digest": digest,
            "run_key": run_key,
            "metric": summary.metric,
            "value": summary.best,
            "best_training_step": summary.best_training_step,
            SYSTEM_PRECISION: trainer.sampler.system.config.precision,
        }
        write_json(note, draft / "astra.json")
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
            logged = _log(trainer, report, log, logged)
            advance(report.training_step - 1 - done)
            done = report.training_step - 1
        advance(total - done)
    _log_evaluations(trainer, log, logged)


def _log(trainer: "Trainer", report: "StepReport", log: "RunLog", logged: int) -> int:
    log.log_step({**report.row(), **report.timings}, report.step)
    return _log_evaluations(trainer, log, logged)


def _log_evaluations(trainer: "Trainer", log: "RunLog", logged: int) -> int:
    """Logs the evaluations that are new and returns how many there are."""
    points = trainer.progress.evaluations
    for point in points[logged:]:
        log.log_step(point.metrics, point.step)
    return len(points)


def _trainer(
    seed: int,
    machine: MachineConfiguration,
    system: SystemConfiguration,
    rollouts: RolloutsConfiguration,
    reward: Choice,
    training: TrainingConfiguration,
    evaluation: EvaluationConfiguration,
    *,
    valid: Path,
    base: Path,
    baseline: Path,
    folder: Path,
    world: "World",
) -> "Trainer":
    from astra_core.assembly import (
        ModelFolders,
        build_evaluator,
        build_sampler,
        build_trainer,
        load_system,
    )
    from astra_core.training.checkpoint import CheckpointStore

    folders = ModelFolders.of(read_model_paths(base))
    loaded = load_system(system, folders, machine=machine, is_trained=True)
    prompts = read_prompts(valid / "train.parquet")
    dev = read_prompts(valid / "dev.parquet", limit=evaluation.num_training_prompts)
    return build_trainer(
        training,
        build_sampler(rollouts, reward, system=loaded, prompts=prompts, seed=seed),
        evaluator=build_evaluator(evaluation, reward, prompts=dev, seed=seed),
        store=CheckpointStore(folder / "checkpoints", keep=training.checkpoint.keep),
        first_graphs=read_rollouts(baseline / ROLLOUTS_FILE),
        world=world,
    )


def _open_run(run_key: str, sections: dict[str, Any], *, engine: str) -> "RunLog":
    from tasks.tracking.runs import ENGINE_TAG, open_run

    # Not a parameter of the stage: under what name a run is recorded cannot change its result, and
    # another name must not train again.
    params = read_params() if PARAMS_FILE.is_file() else Params()
    return open_run(
        run_key,
        experiment=params.registration.experiment,
        params=sections,
        tags={ENGINE_TAG: engine},
    )


def _run_key(sections: dict[str, Any], *, valid: Path, base: Path, baseline: Path) -> str:
    """Names a run: the same parameters, inputs and code go on where they were."""
    root = Path(__file__).resolve().parents[2]
    # Of plug-ins too: an edited one must begin anew, not export what the unedited one had learned.
    code = [
        folder_digest(root / "astra_core", keep=lambda file: file.suffix == ".py"),
        folder_digest(PLUGINS, keep=lambda file: file.suffix not in {".pyc", ".md"}),
    ]
    inputs = [
        file_digest(valid / "train.parquet"),
        file_digest(valid / "dev.parquet"),
        file_digest(baseline / ROLLOUTS_FILE),
        {role: entry["digest"] for role, entry in read_manifest(base, keys=("digest",)).items()},
    ]
    return record_digest([sections, inputs, code])


def _summary(trainer: "Trainer", training: TrainingConfiguration) -> TrainingSummary:
    if not trainer.progress.evaluations:
        msg = (
            f"training.trainer {training.trainer.name} must examine the attacker at least once, "
            "got no evaluation; call self.evaluate() in its steps()"
        )
        raise TrainingError(msg)
    first = trainer.progress.evaluations[0].metrics[training.metric]
    return TrainingSummary(
        training_steps=trainer.progress.training_step,
        optimizer_steps=trainer.progress.step,
        metric=training.metric,
        first=first,
        best=trainer.best.value,
        best_training_step=trainer.best.training_step,
        stopped_because=trainer.progress.stopped_because,
    )


def _record(
    trainer: "Trainer", summary: TrainingSummary, run_key: str, digest: str
) -> dict[str, Any]:
    return {
        "run_key": run_key,
        "checkpoint_digest": digest,
        "training_steps": summary.training_steps,
        "optimizer_steps": summary.optimizer_steps,
        "engine": str(trainer.plan),
        "training_precision": trainer.config.precision,
        SYSTEM_PRECISION: trainer.sampler.system.config.precision,
        "num_nonfinite": trainer.progress.num_nonfinite,
        "num_empty_experiences": trainer.progress.num_empty,
        "stopped_because": summary.stopped_because,
        "first": {"metric": summary.metric, "value": summary.first},
        "best": {
            "metric": summary.metric,
            "value": summary.best,
            "training_step": summary.best_training_step,
        },
        "evaluations": [
            {"training_step": point.training_step, "step": point.step, **point.metrics}
            for point in trainer.progress.evaluations
        ],
    }
