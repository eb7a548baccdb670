"""What a report is made from: everything that a version's run keeps at the tracker."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from tasks.figures.turns import FILE as TURNS, TurnRecord
from tasks.records.baselines import BaselineRecord, baselines_of
from tasks.records.evaluation import EvaluationRecord, read_evaluation
from tasks.records.hardening import HARDENING, Hardening
from tasks.records.reports import read_record, read_report
from tasks.records.training import TrainingRecord
from tasks.report.findings import Finding, archived_findings, confirmed_share, read_findings
from tasks.tracking.artifacts import fetch, kept_files
from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.chronicle import Lineage, lineage_of
from tasks.tracking.pages import pages_of
from tasks.tracking.registry.evidence import evaluation_folder, read_table
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG, EVALUATION_KEY_TAG

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

FLOW_TAG = "prefect.flow_run"
"""A run's tag with the address of its flow run's page."""
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_EVALUATION, _TABLE = "evaluation.json", "evaluation_prompts.parquet"
_NEEDED = frozenset({_EVALUATION, _TABLE})
_STEPS, _TRAINING = "training_steps.csv", "training.json"


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that a report needs about one version.

    Attributes:
        lineage: The version, its decision, and what it was made from.
        params: Sections of params.yaml, as it was examined.
        evaluation: Both attackers on the test prompts.
        steps: A row per optimiser step.
        table: A row per prompt and role.
        turns: Success by turn; None for a version that was registered without it.
        findings: Conversations that scored highest, masked.
        data: The reports of the data gates by name.
        seconds: From the start of the run to its end; None while it runs.
        rules: What the gate tried, with what it found; none before a decision.
        server: The address of MLflow's pages.
        flow_run: The address of the page of the flow run that decided; empty for none.
        baselines: Untrained attackers at equal cost; None where they were not asked for here.
        hardening: Of the target, begun with this version; None where there was none here.
        confirmed: Share that people confirmed of what its examinations found, and of how many they
            spoke; None where they spoke of none here.
    """

    model_name: str
    lineage: Lineage
    experiment_id: str
    params: Mapping[str, Any]
    evaluation: EvaluationRecord
    training: TrainingRecord
    steps: "pd.DataFrame"
    table: "pd.DataFrame"
    turns: TurnRecord | None
    findings: tuple[Finding, ...]
    data: Mapping[str, Mapping[str, Any]]
    seconds: float | None
    rules: tuple[Mapping[str, Any], ...] = ()
    server: str = ""
    flow_run: str = ""
    baselines: BaselineRecord | None = None
    hardening: Hardening | None = None
    confirmed: tuple[Interval, int] | None = None

    @property
    def name(self) -> str:
        """The version, for a person."""
        return f"{self.model_name} version {self.lineage.summary.version}"

    @property
    def examination(self) -> str:
        """The key shared by equal examinations."""
        return self.evaluation.evaluation_key

    def total(self, name: str) -> float | None:
        """The sum over experiences of a figure that all their updates share; None without it."""
        if not {"training_step", name} <= set(self.steps.columns):
            return None
        rows = self.steps.dropna(subset=[name]).drop_duplicates("training_step")
        return float(rows[name].sum())


def read_material(client: "MlflowClient", name: str, wanted: str) -> Material:
    """What the tracker and the registry have about a version.

    ``wanted``: a version's number, an alias, or the id of a run that has a version.

    Raises TrackingError if there is no such version or run, DataError if its run does not have its
    examination, or a file of it cannot be read.
    """
    lineage = lineage_of(client, name, _version_of(client, name, wanted))
    run = client.get_run(lineage.summary.run_id)
    version = client.get_model_version(name, lineage.summary.version)
    folder = evaluation_folder(version.tags.get(EVALUATION_KEY_TAG, ""))
    own = run.info.run_id
    if not kept_files(client, own, folder) >= _NEEDED:
        msg = (
            f"version {lineage.summary.version} of '{name}' must have its examination in run "
            f"{own}, got none; restore it, or register the attacker again"
        )
        raise DataError(msg)
    ended, tags = run.info.end_time, {**run.data.tags, **version.tags}
    keys = tags.get(CHECKPOINT_DIGEST_TAG, ""), tags.get("astra.run_key", "")
    with fetch(client, own, folder) as examined, fetch(client, own, "training") as trained:
        evaluation = read_evaluation(examined / _EVALUATION)
        return Material(
            model_name=name,
            lineage=lineage,
            experiment_id=str(run.info.experiment_id),
            params=_optional(examined / "params.json"),
            evaluation=evaluation,
            training=read_record(trained / _TRAINING, TrainingRecord),
            steps=read_table(trained / _STEPS, columns=("step",)),
            table=read_table(examined / _TABLE, columns=("role", "prompt_id", "success_rate")),
            turns=_turns(examined / TURNS),
            findings=archived_findings(keys) or _findings(examined / "examples.md"),
            data=_data(client, own),
            seconds=(ended - run.info.start_time) / 1000 if ended else None,
            rules=tuple(json.loads(version.tags.get("promotion.rules") or "[]")),
            server=pages_of(client.tracking_uri),
            flow_run=run.data.tags.get(FLOW_TAG, ""),
            baselines=baselines_of(keys[0], evaluation.evaluation_key),
            hardening=_hardening(keys[0]),
            confirmed=confirmed_share(keys[0]),
        )


def _version_of(client: "MlflowClient", name: str, wanted: str) -> str:
    """The newest version of a run, if a run is named; else what was asked for."""
    if not _RUN_ID.fullmatch(wanted):
        return wanted
    found = client.search_model_versions(f"name = '{name}' and run_id = '{wanted}'")
    if not found:
        msg = (
            f"run {wanted} must have a version of '{name}', got none; 'astra history --json' "
            "lists the runs of versions"
        )
        raise TrackingError(msg)
    return max((str(version.version) for version in found), key=int)


def _turns(path: Path) -> TurnRecord | None:
    return read_record(path, TurnRecord) if path.is_file() else None


def _hardening(attacker: str) -> Hardening | None:
    """The last hardening on this machine, if this attacker is its old one."""
    try:
        found = read_record(HARDENING, Hardening)
    except DataError:
        return None
    return found if found.attacker == attacker else None


def _findings(path: Path) -> tuple[Finding, ...]:
    return read_findings(path.read_text(encoding="utf-8")) if path.is_file() else ()


def _data(client: "MlflowClient", run_id: str) -> dict[str, Mapping[str, Any]]:
    there = kept_files(client, run_id, "data")
    found: dict[str, Mapping[str, Any]] = {}
    for name in ("validation", "rollouts"):
        if f"{name}.json" in there:
            with fetch(client, run_id, f"data/{name}.json") as file:
                found[name] = read_report(file)
    return found


def _optional(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
