"""Stage ``registration``: the trained attacker becomes a version in the model registry, once.

Registering the same checkpoint with the same evaluation again finds what exists. Each step looks up
what it would make, so the stage can be killed at any point and run again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from tasks.figures.turns import TurnRecord, turn_rates
from tasks.params.models import ModelsConfiguration
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import (
    RegistrationConfiguration,
    RunTraining,
    TrackingConfiguration,
    ValidationConfiguration,
)
from tasks.pipeline.stage import Dep, Receipt, Untracked, plain_sections, stage
from tasks.records.evaluation import read_evaluation
from tasks.records.models import read_manifest
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.records.rollouts import read_rollouts
from tasks.records.training import TrainingRecord
from tasks.report.publish import renew_report
from tasks.tracking.registry.evidence import Evidence, evaluation_folder, read_package, read_table
from tasks.tracking.registry.registration import record
from tasks.tracking.store import connect, store_errors


@dataclass(frozen=True, slots=True)
class RegistrationParams:
    """Every section that decided the attacker, recorded beside it."""

    seed: int
    data_seed: int
    model_seed: int
    training_seed: int
    machine: MachineConfiguration
    prompts: PromptsConfiguration
    validation: ValidationConfiguration
    models: ModelsConfiguration
    system: SystemConfiguration
    rollouts: RolloutsConfiguration
    reward: Choice
    training: RunTraining
    evaluation: EvaluationConfiguration
    registration: RegistrationConfiguration
    # What the pages also show; a change of it must not register again.
    tracking: Untracked[TrackingConfiguration]


@dataclass(frozen=True, slots=True)
class RegistrationFiles:
    """The attacker with everything known about it, and where the receipt goes."""

    attacker: Dep = Path("models/attacker")
    base: Dep = Path("models/base")
    seed_prompts: Dep = Path("data/prompts")
    valid: Dep = Path("data/valid")
    baseline: Dep = Path("data/rollouts")
    steps: Dep = Path("reports/training_steps.csv")
    training_report: Dep = Path("reports/training.json")
    evaluation_report: Dep = Path("reports/evaluation.json")
    table: Dep = Path("reports/evaluation_prompts.parquet")
    examples: Dep = Path("reports/examples.md")
    evidence: Dep = Path("data/evaluation")
    validation_report: Dep = Path("reports/validation.json")
    rollouts_report: Dep = Path("reports/rollouts.json")
    prompts_docs: Dep = Path("reports/data_docs/prompts.html")
    rollouts_docs: Dep = Path("reports/data_docs/rollouts.html")
    receipt: Receipt = Path("reports/registration.json")


@dataclass(frozen=True, slots=True)
class RegistrationSetup:
    """What is known about the attacker, read and checked, and where it is recorded."""

    evidence: Evidence
    registration: RegistrationConfiguration

    @classmethod
    def of(cls, params: RegistrationParams, files: RegistrationFiles = RegistrationFiles()) -> Self:
        """Reads the outputs of the stages before.

        Raises DataError if a report is missing or lacks what is recorded.
        """
        return cls(_evidence(params, files), params.registration)


@stage()
def register_attacker(
    setup: RegistrationSetup, files: RegistrationFiles = RegistrationFiles()
) -> RegistrationReceipt:
    """Records the attacker, its run and its reports in MLflow, and makes it the candidate.

    Raises TrackingError if the store did not answer.
    """
    with store_errors():
        client = connect()
        result = record(client, setup.evidence, setup.registration)
    write_record(result, files.receipt)
    renew_report(result.model_name, result.version, receipt=files.receipt, client=client)
    return result


def _evidence(params: RegistrationParams, files: RegistrationFiles) -> Evidence:
    """The outputs of the stages before, read and checked."""
    examined = read_evaluation(files.evaluation_report)
    training = read_record(files.training_report, TrainingRecord)
    models = read_manifest(files.base)
    weights = models.target.digest if models.target else ""
    return Evidence(
        params=plain_sections(params),
        package=read_package(files.attacker, params.system),
        evaluation=examined,
        training=training,
        target_digest=weights or (examined.target or {}).get("digest", ""),
        parent=models.attacker.parent,
        # Without an update, as where no two probes differ in reward, there is no loss.
        steps=read_table(files.steps, columns=("step",)),
        table=read_table(files.table, columns=("role", "success_rate")),
        files=_artifacts(files, evaluation_folder(examined.evaluation_key)),
        datasets={"prompts": files.seed_prompts, "valid": files.valid, "rollouts": files.baseline},
        turns=_turns(params, files.evidence),
    )


def _turns(params: RegistrationParams, folder: Path) -> TurnRecord | None:
    """Success by turn of both attackers; None where their rollouts were not kept."""
    files = [folder / f"{role}.parquet" for role in ("attacker", "baseline")]
    if not all(file.is_file() for file in files):
        return None
    told = params.evaluation
    return TurnRecord(
        *(
            turn_rates(
                read_rollouts(file),
                threshold=told.threshold,
                num_resamples=told.num_resamples,
                confidence=told.confidence,
                seed=params.training_seed,
            )
            for file in files
        )
    )


def _artifacts(files: RegistrationFiles, examination: str) -> dict[Path, str]:
    """The files that a run keeps unchanged, each with its folder in the run's artifacts."""
    # With these two, ``astra restore`` finds data and models again, committed or not.
    project = (path for path in (Path("params.yaml"), Path("dvc.lock")) if path.is_file())
    return {
        **dict.fromkeys(project, examination),
        files.steps: "training",
        files.training_report: "training",
        files.validation_report: "data",
        files.rollouts_report: "data",
        files.prompts_docs: "data",
        files.rollouts_docs: "data",
        files.evaluation_report: examination,
        files.table: examination,
        files.examples: examination,
    }
