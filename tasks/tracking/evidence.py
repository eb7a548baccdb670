"""What is recorded about one attacker: reports, tables and the checkpoint, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import SystemConfiguration
from astra_core.errors import DataError
from astra_core.files import read_json, record_digest
from tasks.tracking.versions import Package

if TYPE_CHECKING:
    import pandas as pd

EXAMINED = (
    "evaluation_key",
    *(f"attacker.attack_success_rate.{end}" for end in ("value", "low", "high")),
    "baseline",
    "lift.value",
)
"""What a report of an examination must hold to be recorded."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is recorded about one attacker, read from files and checked.

    Attributes:
        params: Every section of params.yaml.
        run_key: Of the training.
        package: The checkpoint to serve.
        evaluation: The record in reports/evaluation.json.
        training: The record in reports/training.json.
        target_digest: Of the target's weights.
        steps: A row per optimiser step.
        table: A row per prompt and role.
        files: What is kept as it is, by folder in the run's artifacts.
        datasets: What the attacker has seen, by part.
    """

    params: Mapping[str, Any]
    run_key: str
    package: Package
    evaluation: Mapping[str, Any]
    training: Mapping[str, Any]
    target_digest: str
    steps: "pd.DataFrame"
    table: "pd.DataFrame"
    files: Mapping[Path, str]
    datasets: Mapping[str, Path]

    @property
    def key(self) -> str:
        """Names the version: the package and what its examination found."""
        return record_digest([self.package.key, dict(self.evaluation)])

    @property
    def folder(self) -> str:
        """Where the examination's files are in the run's artifacts."""
        return evaluation_folder(self.evaluation["evaluation_key"])


def evaluation_folder(evaluation_key: str) -> str:
    """Where the files of one examination are in a run's artifacts."""
    return f"evaluation/{evaluation_key[:16]}"


def final_figures(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """The examination flat: ``final/...`` the attacker's, ``baseline/...`` the untrained one's."""
    flat: dict[str, float] = {}
    parts = {"final": evaluation["attacker"], "baseline": evaluation["baseline"]}
    for area, figures in {**parts, "final/": {"lift": evaluation["lift"]}}.items():
        for name, value in figures.items():
            key = f"{area.rstrip('/')}/{name}"
            if isinstance(value, Mapping):
                flat[key] = value["value"]
                flat |= {f"{key}_{end}": value[end] for end in ("low", "high")}
            elif value is not None:
                flat[key] = value
    return flat


def read_package(attacker: Path, system: SystemConfiguration) -> Package:
    """The checkpoint in ``attacker``, to be sampled as the system samples probes.

    Raises:
        DataError: It has no record of its own.
    """
    config = {
        "separator": system.separator,
        "max_context_tokens": system.max_context_tokens,
        **system.probe.model_dump(mode="json"),
    }
    return Package(
        attacker, str(read_report(attacker / "astra.json", keys=["digest"])["digest"]), config
    )


def read_report(path: Path, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The record in a JSON report.

    Args:
        path: The file.
        keys: What it must hold; ``attacker.value`` is a key of an inner record.

    Raises:
        DataError: There is none, or it lacks a key.
    """
    try:
        found = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{path} must be a JSON report, got {type(error).__name__}; run the stages before"
        raise DataError(msg) from error
    if not isinstance(found, dict):
        got = type(found).__name__
        msg = f"{path} must be a JSON report, got {got} in place of it; run the stages before"
        raise DataError(msg)
    for key in keys:
        value: Any = found
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            msg = f"{path} must hold {key}, got a report without it; run the stages before"
            raise DataError(msg)
    return found


def read_table(path: Path, *, columns: Sequence[str] = ()) -> "pd.DataFrame":
    """The table in a CSV or Parquet file.

    Args:
        path: The file.
        columns: Some that it must have.

    Raises:
        DataError: There is none, or it lacks a column.
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
