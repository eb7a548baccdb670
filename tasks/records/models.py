"""``models/base/manifest.json``: which model plays which role, and where its weights are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from astra_core.errors import ConfigurationError
from astra_core.files import read_json
from tasks.records.reports import write_record

ROLES = ("attacker", "target", "reference")
FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class Parent:
    """The earlier attacker that a model comes from.

    ``model_name``: the name under which it is registered; None for a folder.
    """

    digest: str
    run_key: str | None = None
    model_name: str | None = None
    version: str | None = None
    alias: str | None = None
    run_id: str | None = None

    def words(self) -> str:
        """A description for a person."""
        if self.version is not None:
            return f"{self.model_name} version {self.version}"
        return f"attacker {self.digest[:12]}"

    def tags(self) -> dict[str, str]:
        """Tags for the run and the version of the attacker whose training began from it."""
        named = {
            "astra.parent": self.words(),
            "astra.parent_digest": self.digest,
            "astra.parent_run_key": self.run_key,
            "astra.parent_version": self.version,
            "astra.parent_run_id": self.run_id,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model.

    Attributes:
        path: Its folder, below that of the manifest; if it is outside, below the project or, where
            it is not in the project either, from the root.
        is_outside: True where the weights stay where a person put them.
        source: ``builtin``, ``folder``, ``hub`` or ``version``.
    """

    path: str
    is_outside: bool
    digest: str
    source: str | None = None
    revision: str | None = None
    parent: Parent | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The models of the roles; no target if that of ``system.target`` has no weights."""

    attacker: ModelEntry
    reference: ModelEntry
    target: ModelEntry | None = None

    def entries(self) -> dict[str, ModelEntry]:
        """The existing models by role."""
        found = {role: getattr(self, role) for role in ROLES}
        return {role: entry for role, entry in found.items() if entry is not None}

    def digests(self) -> dict[str, str]:
        """The digests of the weights by role."""
        return {role: entry.digest for role, entry in self.entries().items()}


def write_manifest(entries: Mapping[str, ModelEntry], base: Path) -> None:
    """Writes the manifest of the roles to ``base``."""
    record = {role: asdict(entry) for role, entry in Manifest(**entries).entries().items()}
    for entry in record.values():
        if entry["parent"] is None:
            del entry["parent"]
    write_record(record, base / FILE)


def read_manifest(base: Path) -> Manifest:
    """What the models stage recorded for each role.

    Raises ConfigurationError if the manifest is missing or is not what that stage writes.
    """
    path = base / FILE
    if not path.is_file():
        msg = f"{path} must exist, got no such file; run the models stage"
        raise ConfigurationError(msg)
    try:
        return TypeAdapter(Manifest).validate_python(read_json(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = _place(error) if isinstance(error, ValidationError) else type(error).__name__
        msg = f"{path} must name the models, got {reason}; run the models stage"
        raise ConfigurationError(msg) from error


def read_model_paths(base: Path) -> dict[str, Path]:
    """The folder of each role that the models stage named in its manifest.

    Raises ConfigurationError if the manifest is missing or a folder is gone.
    """
    manifest = read_manifest(base)
    paths = {}
    for role, entry in manifest.entries().items():
        paths[role] = Path(entry.path) if entry.is_outside else base / entry.path
        if not (paths[role] / "config.json").is_file():
            msg = (
                f"the {role}'s folder must hold a model, got '{paths[role]}'; run the models stage"
            )
            raise ConfigurationError(msg)
    return paths


def _place(error: ValidationError) -> str:
    """The first key that is wrong."""
    key = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    return f"no usable {key}" if key else "no mapping"
