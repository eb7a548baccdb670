"""What the registry knows about its versions: figures, decisions, and what each was made from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.logged import every_version, lineage_record
from tasks.tracking.registry.registered import aliases_in, version_behind
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_PARENT_TAG = "astra.parent_version"
_SHORT = 16


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """One version in a line.

    Attributes:
        created: When it was registered, UTC, ISO 8601.
        attack_success_rate: With its interval, as registered; None if it was not recorded.
        decision: ``promoted``, ``refused`` or empty before there is one.
        parent: The version from which its training began; empty for none.
    """

    version: str
    aliases: tuple[str, ...]
    created: str
    algorithm: str
    seed: str
    attack_success_rate: tuple[float, float, float] | None
    lift: float | None
    decision: str
    reasons: str
    parent: str
    run_id: str

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DataUsed:
    """A data set of a run.

    Attributes:
        dvc_md5: DVC's digest of it; empty if it had none.
        num_rows: Rows of its tables; None if it has no table.
    """

    part: str
    path: str
    digest: str
    dvc_md5: str
    num_rows: int | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Everything that a version was made from."""

    summary: VersionSummary
    checkpoint_digest: str
    target_digest: str
    run_key: str
    scorer: str
    data: tuple[DataUsed, ...]
    code: Mapping[str, str]
    parents: tuple[str, ...]

    def code_line(self) -> str:
        """The commit, and whether there were changes beyond it."""
        is_dirty = self.code.get("git.dirty") == "true"
        changes = ", with changes that were not committed" * is_dirty
        return f"commit {self.code.get('git.commit', 'unknown')[:_SHORT]}{changes}"

    def facts(self) -> Iterator[tuple[str, str]]:
        """Name and value of each part, with the digest by which it is found again."""
        for data in self.data:
            rows = "" if data.num_rows is None else f"{data.num_rows} rows"
            dvc = f"DVC {data.dvc_md5}" if data.dvc_md5 else ""
            told = (data.path, data.digest[:_SHORT], rows, dvc)
            yield data.part, ", ".join(filter(None, told))
        yield "weights", self.checkpoint_digest[:_SHORT]
        yield "parameters", f"run key {self.run_key[:_SHORT]}"
        yield "code", self.code_line()
        yield "parents", ", ".join(f"version {parent}" for parent in self.parents) or "none"
        start = "version."
        libraries = (
            f"{key.removeprefix(start)} {value}"
            for key, value in self.code.items()
            if key.startswith(start)
        )
        yield "libraries", ", ".join(libraries) or "unknown"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def version_summaries(client: "MlflowClient", name: str) -> list[VersionSummary]:
    """Every version of a model, newest first; empty without any."""
    aliases = aliases_in(client, name)
    return [_summary(version, aliases) for version in _versions(client, name)]


def lineage_of(client: "MlflowClient", name: str, wanted: str) -> Lineage:
    """What a version was made from. Raises TrackingError if there is no such version."""
    versions = {str(version.version): version for version in _versions(client, name)}
    aliases = aliases_in(client, name)
    version = versions.get(wanted) or version_behind(client, name, wanted)
    if version is None:
        known = sorted({*versions, *aliases}) or "none"
        msg = (
            f"registered model '{name}' must have version or alias '{wanted}', got {known}; "
            "see 'astra history'"
        )
        raise TrackingError(msg)
    run = client.get_run(str(version.run_id))
    tags, own = lineage_record(client, version), dict(run.data.tags)
    return Lineage(
        _summary(version, aliases),
        tags.get(CHECKPOINT_DIGEST_TAG, ""),
        tags.get("astra.target_digest", ""),
        tags.get("astra.run_key", ""),
        tags.get("scorer", ""),
        _data_of(run),
        {key: own[key] for key in sorted(own) if key.startswith(("git.", "version."))},
        _parents(version, versions),
    )


def _versions(client: "MlflowClient", name: str) -> list["ModelVersion"]:
    found = every_version(client, f"name = '{name}'")
    return sorted(found, key=lambda version: -int(version.version))


def _summary(version: "ModelVersion", aliases: Mapping[str, str]) -> VersionSummary:
    tags, number = dict(version.tags), str(version.version)
    ends = ("", "_low", "_high")
    rates = (_number(tags.get(f"attack_success_rate{end}")) for end in ends)
    told = [rate for rate in rates if rate is not None]
    created = datetime.fromtimestamp(int(version.creation_timestamp) / 1000, UTC)
    return VersionSummary(
        number,
        tuple(sorted(alias for alias, own in aliases.items() if own == number)),
        created.isoformat(timespec="seconds"),
        tags.get("algorithm", ""),
        tags.get("seed", ""),
        (told[0], told[1], told[2]) if len(told) == len(ends) else None,
        _number(tags.get("lift")),
        tags.get("promotion.decision", ""),
        tags.get("promotion.reasons", ""),
        tags.get(_PARENT_TAG, ""),
        str(version.run_id),
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _data_of(run: Any) -> tuple[DataUsed, ...]:
    found = []
    for each in run.inputs.dataset_inputs if run.inputs else ():
        tags = {tag.key: tag.value for tag in each.tags}
        found.append(
            DataUsed(
                each.dataset.name,
                str(json.loads(each.dataset.source or "{}").get("uri", "")),
                each.dataset.digest,
                tags.get("dvc.md5", ""),
                json.loads(each.dataset.profile or "{}").get("num_rows"),
            )
        )
    return tuple(sorted(found, key=lambda data: data.part))


def _parents(version: "ModelVersion", known: Mapping[str, "ModelVersion"]) -> tuple[str, ...]:
    parents: list[str] = []
    parent = dict(version.tags).get(_PARENT_TAG, "")
    # A parent is older than its child, so this ends.
    while parent and parent not in parents:
        parents.append(parent)
        parent = dict(known[parent].tags).get(_PARENT_TAG, "") if parent in known else ""
    return tuple(parents)
