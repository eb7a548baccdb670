"""A job: the Trainer on the examples of a file, resumed from its last checkpoint, never run twice.

The process that trains a job holds a lock that the kernel frees when the process ends for any
reason. Under the lock the job's state decides: a job that has ended is left alone.
"""

import fcntl
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import AlgorithmChoice, Choice, SystemConfiguration, TrainingConfiguration
from astra_core.errors import AstraError
from astra_core.errors.exception_text import shown_text
from astra_core.files import draft_folder_of
from tasks.serving.fine_tuning.lines import FileError, TrainingExample, examples_of
from tasks.serving.fine_tuning.store import JobStore
from tasks.serving.fine_tuning.tables import Job

if TYPE_CHECKING:
    from astra_core.training.progress import StepReport
    from astra_core.training.trainer import Trainer

MAX_STARTS = 3
_KEPT_MODELS = 3
LOCK = "lock"


class _EndedError(Exception):
    """The job was cancelled, or reached its time limit."""


@contextmanager
def job_lock(folder: Path) -> Iterator[bool]:
    """Yields whether this process, and no other, may train the job in this folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def run_job(folder: Path, job_id: str) -> str:
    """The state of a job after it was trained to its end.

    A job that another process trains, or that has ended, is left alone.
    """
    store = JobStore(folder)
    try:
        with job_lock(store.job_folder(job_id)) as is_ours:
            job = store.job(job_id)
            if is_ours and store.move(job_id, "running"):
                _train(store, job)
            return store.job(job_id).status
    finally:
        store.close()


def _train(store: JobStore, job: Job) -> None:
    """Trains, or says why not; a user's mistake is the job's error, without a traceback."""
    if job.starts >= MAX_STARTS:
        words = f"its worker ended {job.starts} times without a new step; worker.log says why"
        store.fail(job.id, words, code="worker_lost")
        return
    store.count_start(job.id)
    try:
        _Training(store, job).run()
    except _EndedError:
        store.note(job.id, f"Training ends: the job has been {store.job(job.id).status}")
    except FileError as error:
        store.fail(job.id, str(error), code="invalid_training_file", param="training_file")
    except AstraError as error:
        store.fail(job.id, shown_text(error), code="training_failed")


class _Training:
    """One job that is being trained."""

    def __init__(self, store: JobStore, job: Job) -> None:
        self.store = store
        self.job = job
        self.folder = store.job_folder(job.id)
        method = job.request.get("method", {}).get("type", "supervised")
        content = store.content_path(job.request["training_file"])
        if not content.is_file():
            msg = "the training file must be there until the job ends, got none; it was deleted"
            raise FileError(msg)
        self.examples = examples_of(content.read_bytes(), method)
        self.hyper = job.settings["hyperparameters"]

    def run(self) -> None:
        """Trains, saves the model and reports it, in that order."""
        from astra_core.training.driving import drive

        trainer = self._trainer()
        if trainer.resume():
            self.store.note(self.job.id, f"Resumed after step {trainer.progress.step}")
        self.total = trainer.config.training_steps
        drive(trainer, self._hear(trainer))
        self._save(trainer, self.folder / "model")
        name = self.job.settings["name"]
        if self.store.move(
            self.job.id,
            "succeeded",
            fine_tuned_model=name,
            trained_tokens=self.job.settings["num_tokens"],
        ):
            self.store.note(self.job.id, f"New fine-tuned model created: {name}")

    def _trainer(self) -> "Trainer":
        from astra_core.registry import build
        from astra_core.training.checkpoint import CheckpointStore
        from astra_core.training.trainer import Trainer
        from astra_parts.assembly import ModelFolders, load_system
        from tasks.serving.fine_tuning.rollouts import ExampleSampler

        own = self.job.settings
        config = training_of(own, self.examples)
        system_config = SystemConfiguration.read(own["system"], where="system")
        folder = Path(own["folder"])
        folders = ModelFolders(folder, folder, folder)
        system = load_system(system_config, folders, is_trained=True, seed=own["seed"])
        sampler = ExampleSampler(
            system, self.examples, seed=own["seed"], num_passes=self.hyper["n_epochs"]
        )
        store = CheckpointStore(self.folder / "checkpoints", keep=2)
        algorithm = build("algorithm", config.algorithm, system=system)
        return Trainer(config, sampler, algorithm, store=store)

    def _hear(self, trainer: "Trainer") -> Any:
        name, batch = self.job.settings["name"], self.hyper["batch_size"]

        def hear(report: "StepReport") -> None:
            if self.store.job(self.job.id).status != "running":
                raise _EndedError
            step, loss = report.step, float(report.loss)
            told = {"step": step, "train_loss": loss if math.isfinite(loss) else None}
            words = f"Step {step}/{self.total}: training loss={loss:.4f}"
            data = {**told, "total_steps": self.total}
            self.store.note_step(self.job.id, words, step=step, data=data)
            seen = report.training_step * batch
            is_end = seen // len(self.examples) > (seen - batch) // len(self.examples)
            if is_end and report.training_step < self.total:
                self._save(trainer, self.folder / f"model-{step}")
                model = f"{name}:ckpt-step-{step}"
                self.store.add_checkpoint(self.job.id, step, model=model, loss=loss)
                self._forget_old()

        return hear

    def _forget_old(self) -> None:
        """Removes all intermediate models but the newest."""
        import shutil

        made = sorted(self.folder.glob("model-*"), key=lambda path: int(path.name[6:]))
        for path in made[:-_KEPT_MODELS]:
            shutil.rmtree(path, ignore_errors=True)

    def _save(self, trainer: "Trainer", folder: Path) -> None:
        if not folder.is_dir():
            with draft_folder_of(folder) as draft:
                trainer.sampler.system.attacker.save(draft)


def training_of(
    settings: Mapping[str, Any], examples: list[TrainingExample]
) -> TrainingConfiguration:
    """The training configuration of a job with these settings."""
    hyper = settings["hyperparameters"]
    base = TrainingConfiguration.read(settings["training"], where="training")
    return on_examples(
        base,
        algorithm=_algorithm(hyper),
        steps=math.ceil(len(examples) * hyper["n_epochs"] / hyper["batch_size"]),
        batch_size=hyper["batch_size"],
        lr=base.lr * hyper["learning_rate_multiplier"],
    )


def on_examples(
    base: TrainingConfiguration,
    *,
    algorithm: AlgorithmChoice,
    steps: int,
    batch_size: int,
    lr: float,
) -> TrainingConfiguration:
    """The configuration for learning from examples that are given: one update for each batch."""
    changes: dict[str, Any] = {
        "trainer": Choice(name="trainer"),
        "algorithm": algorithm,
        "training_steps": steps,
        "num_episodes_per_experience": batch_size,
        "batch_size": batch_size,
        "gradient_accumulation_steps": 1,
        "epochs_per_experience": 1,
        "max_update_share": 1.0,
        "lr": lr,
        "warmup_steps": min(base.warmup_steps, steps // 10),
        "agents": {},
        "evaluate": "none",
        "keep": "last",
        "early_stopping": base.early_stopping.model_validate(
            {"patience": None, "max_kl_nats": None}
        ),
        "checkpoint": base.checkpoint.model_validate({"save_every": max(1, steps // 20)}),
        "dump_steps": (),
    }
    return base.model_copy(update=changes)


def _algorithm(hyper: Mapping[str, Any]) -> AlgorithmChoice:
    if "beta" in hyper:
        return AlgorithmChoice(name="dpo", options={"beta": hyper["beta"]})
    return AlgorithmChoice(name="expert_iteration", options={"selection": "threshold"})
