"""Runs one point to its end in its own process, and keeps its figures."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from astra_core.metrics.statistics import Interval
from flows.errors import PassingStageError, StageError
from flows.servers.processes import child_environment, run_group, stage_command
from flows.sweeps.points import Point
from tasks.params.overlay import VARIABLE
from tasks.pipeline import failures
from tasks.pipeline.names import STAGE_NAMES
from tasks.records.evaluation import EVALUATION, read_evaluation
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.records.training import TRAINING, TrainingRecord
from tasks.tracking.runs import PARENT_VARIABLE
from tasks.tracking.store import alone_with, tracking_uri
from tasks.tracking.sweeps import adopt

STEPS = Path("reports/training_steps.csv")


@dataclass(frozen=True, slots=True)
class PointResult:
    """The result of a point.

    Attributes:
        setting: ``section.key=value`` for each axis.
        run_id: The id of its MLflow run; None if the tracker was unreachable.
        dev_success: Success on the dev prompts that chose its checkpoint; None where none did.
    """

    name: str
    setting: tuple[str, ...]
    seed: int
    key: str
    seconds: float
    run_key: str
    run_id: str | None
    success: Interval
    baseline: Interval
    lift: Interval
    dev_success: float | None
    unique_probes: float | None

    def line(self) -> str:
        """One line about the result for a person."""
        return f"success {self.success.spelled()}, gain {self.lift.spelled('+.3f')}"


def kept_result(point: Point) -> PointResult | None:
    """The result of the point's run, or None if it has not run yet."""
    return read_record(point.result, PointResult) if point.result.is_file() else None


def run_point(point: Point, *, parent: str | None, timeout_s: float | None) -> PointResult:
    """The point's result, after it has run or from its earlier run; a killed one is resumed."""
    with alone_with(point.folder):
        found = kept_result(point)
        if found is None:
            started = time.monotonic()
            run_stages(point, *point.turns, parent=parent, timeout_s=timeout_s)
            found = _read(point, parent, seconds=round(time.monotonic() - started, 1))
            write_record(found, point.result)
        # A kill may have come just before.
        point.remove_workspace()
    return found


def register_point(point: Point, *, timeout_s: float | None) -> RegistrationReceipt:
    """The receipt of the point, after it is registered as the candidate.

    Its stages are restored from the DVC cache.
    """
    with alone_with(point.folder):
        run_stages(point, *point.turns, "registration", parent=None, timeout_s=timeout_s)
        receipt = read_record(point.folder / RECEIPT, RegistrationReceipt)
        point.remove_workspace()
    return receipt


def run_stages(point: Point, *turns: str, parent: str | None, timeout_s: float | None) -> None:
    """Runs stages in the point's workspace, which is created if it is missing.

    Raises StageError if one failed; the message is the stage's own.
    """
    point.make_workspace()
    for stage in STAGE_NAMES:
        failures.clear_failure(stage, folder=point.folder / failures.FAILURES)
    own = {
        "MLFLOW_TRACKING_URI": tracking_uri(),
        "DVC_SITE_CACHE_DIR": str((point.folder / ".dvc" / "site").absolute()),
        **({PARENT_VARIABLE: parent} if parent else {}),
    }
    # Values of ``as_if`` are in the workspace's params.yaml, where the point's own replace them.
    environment = child_environment() | own | {VARIABLE: ""}
    command = stage_command("tasks.pipeline.point", *turns)
    try:
        with point.log.open("a", encoding="utf-8") as log:
            status = run_group(
                command, environment=environment, timeout_s=timeout_s, folder=point.folder, log=log
            )
    except subprocess.TimeoutExpired:
        msg = f"point {point.name} must end within {timeout_s:g} s; raise flow.timeouts_s"
        raise StageError(msg) from None
    if status != 0:
        raise _failure(point, status)


def _failure(point: Point, status: int) -> StageError:
    """The failure that a stage left in the workspace."""
    folder = point.folder / failures.FAILURES
    for stage in STAGE_NAMES:
        failure = failures.read_failure(stage, folder=folder)
        if failure is not None:
            kind = PassingStageError if failure.retryable else StageError
            return kind(f"{stage}: {failure.message}")
    return PassingStageError(f"it {failures.cut_off(status)}; see {point.log}")


def _read(point: Point, parent: str | None, *, seconds: float) -> PointResult:
    evaluation = read_evaluation(point.folder / EVALUATION)
    training = read_record(point.folder / TRAINING, TrainingRecord)
    run_id = adopt(
        training,
        evaluation,
        params=point.params,
        steps=point.folder / STEPS,
        name=point.name,
        parent=parent,
    )
    chosen = evaluation.selection
    unique = evaluation.attacker.get("unique_probes")
    return PointResult(
        name=point.name,
        setting=point.setting,
        seed=point.seed,
        key=point.key,
        seconds=seconds,
        run_key=training.run_key,
        run_id=run_id,
        success=evaluation.rate(),
        baseline=evaluation.rate("baseline"),
        lift=evaluation.lift,
        dev_success=None if chosen is None else chosen.attack_success_rate.value,
        unique_probes=float(unique) if isinstance(unique, int | float) else None,
    )
