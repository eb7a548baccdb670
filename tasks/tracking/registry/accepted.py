"""What the data of the champion were like: the last that were accepted with their attacker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.records.data_profile import DataProfile
from tasks.records.reports import read_report
from tasks.tracking.artifacts import fetch, kept_files
from tasks.tracking.registry.registered import aliases_in

if TYPE_CHECKING:
    from mlflow import MlflowClient

REPORTS: Mapping[str, Path] = {
    "prompts": Path("reports/validation.json"),
    "rollouts": Path("reports/rollouts.json"),
}
"""Whose profile each report has."""
# Where a version's run keeps them.
_FOLDER = "data"


@dataclass(frozen=True, slots=True)
class AcceptedData:
    """The profiles of a version's data.

    ``profiles``: by subject; a version registered before there were profiles has none.
    """

    version: str
    profiles: Mapping[str, DataProfile]


def accepted_data(client: "MlflowClient", name: str) -> AcceptedData | None:
    """What the champion's run says of its data; None while there is no champion."""
    version = aliases_in(client, name).get("champion")
    if version is None:
        return None
    run_id = str(client.get_model_version(name, version).run_id)
    there = kept_files(client, run_id, _FOLDER)
    found = {}
    for subject, report in REPORTS.items():
        if report.name in there:
            with fetch(client, run_id, f"{_FOLDER}/{report.name}") as file:
                profile = profile_in(read_report(file))
            if profile is not None:
                found[subject] = profile
    return AcceptedData(version, found)


def profile_in(report: Mapping[str, Any]) -> DataProfile | None:
    """The profile in the report of either gate; None where it has none."""
    # The rollouts' report has that of their checks within.
    record = report.get("checks", {}) if "num_turns" in report else report
    profile = record.get("profile")
    return None if profile is None else DataProfile(**profile)
