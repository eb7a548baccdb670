"""What is recorded about one attacker: reports, tables and the checkpoint, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import SystemConfiguration
from astra_core.errors import DataError
from astra_core.files import read_json, record_digest
from astra_core.models.folders import FORMAT
from astra_core.settings.attacker import DEFAULT_INSTRUCTION, AttackerConfiguration
from tasks.figures.turns import TurnRecord
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.evaluation import EvaluationRecord
from tasks.records.models import Parent
from tasks.records.reports import read_record
from tasks.records.training import TrainingRecord
from tasks.tracking.registry.versions import Package

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is recorded about one attacker, read from files and checked.

    ``target_digest``: the digest of the target, or of its weights if it has some.
    """

    params: Mapping[str, Any]
    package: Package
    evaluation: EvaluationRecord
    training: TrainingRecord
    target_digest: str
    steps: "pd.DataFrame"
    table: "pd.DataFrame"
    files: Mapping[Path, str]
    datasets: Mapping[str, Path]
    parent: Parent | None = None
    turns: TurnRecord | None = None

    @property
    def key(self) -> str:
        """The version's key, from the package and the result of its examination."""
        return record_digest([self.package.key, self.evaluation.to_record()])

    @property
    def folder(self) -> str:
        """The folder of the examination's files in the run's artifacts."""
        return evaluation_folder(self.evaluation.evaluation_key)


def evaluation_folder(evaluation_key: str) -> str:
    """The folder of one examination's files in a run's artifacts."""
    return f"evaluation/{evaluation_key[:16]}"


def read_package(attacker: Path, system: SystemConfiguration) -> Package:
    """The checkpoint in ``attacker``, sampled like the system's probes.

    It reads conversations as in its training, whatever the system's settings are now.
    """
    config = {
        "separator": system.separator,
        "max_context_tokens": system.max_context_tokens,
        **system.probe.model_dump(mode="json"),
    }
    if (file := attacker / FORMAT).is_file():
        told = AttackerConfiguration.read(read_json(file), where=str(file))
        own = {"instruction": told.instruction or DEFAULT_INSTRUCTION}
        config["attacker"] = told.model_dump(mode="json") | own
    return Package(attacker, read_record(attacker / ATTACKER_FILE, AttackerNote).digest, config)


def read_table(path: Path, *, columns: Sequence[str] = ()) -> "pd.DataFrame":
    """The table in a CSV or Parquet file.

    Raises DataError if there is none, or it lacks a column.
    """
    import pandas as pd
    from pyarrow import ArrowException

    try:
        found = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, ArrowException) as error:
        msg = f"{path} must be a table, got {type(error).__name__}; run the stages before"
        raise DataError(msg) from error
    missing = [column for column in columns if column not in found]
    if missing:
        msg = f"{path} must have the column {missing[0]}, got none; run the stages before"
        raise DataError(msg)
    return found
