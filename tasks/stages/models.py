"""Stage ``models``: attacker, target and reference as Hugging Face folders, or pointers to them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from astra_core.config import MachineConfiguration, SystemConfiguration
from astra_core.errors import ConfigurationError, DataError
from astra_core.files import draft_folder_of
from tasks.builtin.language_model import (
    LanguageModelConfiguration,
    make_language_model,
    save_language_model,
)
from tasks.machine.console import progress
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import RegistrationConfiguration
from tasks.params.targets import has_weights
from tasks.pipeline.stage import Out, Untracked, stage
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.models import ROLES, ModelEntry, Parent, write_manifest
from tasks.records.reports import read_record


@dataclass(frozen=True, slots=True)
class ModelsSummary:
    """Which models take part, and how large they are."""

    sources: dict[str, str]
    num_parameters: dict[str, int]

    def summary(self) -> str:
        """One line."""
        parts = [
            f"{role} {self.sources[role]} ({self.num_parameters[role] / 1e6:.2f} M)"
            for role in ROLES
            if role in self.num_parameters
        ]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ModelsParams:
    """The sections that decide the models."""

    model_seed: int
    models: ModelsConfiguration
    machine: MachineConfiguration
    # For the registry; dvc.yaml names its model_name if a model is one of its versions.
    registration: Untracked[RegistrationConfiguration]
    # dvc.yaml names its target.name if the target is no model of this stage.
    system: Untracked[SystemConfiguration]


@dataclass(frozen=True, slots=True)
class ModelsFiles:
    """Where the models and their manifest go."""

    base: Out = Path("models/base")


@dataclass(frozen=True, slots=True)
class ModelsSetup:
    """The source of each role's model, and what those that are made or copied here are made of."""

    sources: dict[str, ModelSource]
    builtin: LanguageModelConfiguration
    seed: int
    registered_as: str
    num_threads: int

    @classmethod
    def of(cls, params: ModelsParams) -> Self:
        """Finds the target, which may need no model."""
        named, sources = has_weights(params.system.target), params.models.sources
        return cls(
            # A target without weights is no model of this stage.
            sources={role: own for role, own in sources.items() if named or role != "target"},
            builtin=params.models.builtin,
            seed=params.model_seed,
            registered_as=params.registration.model_name,
            num_threads=params.machine.num_threads,
        )


@stage()
def prepare_models(setup: ModelsSetup, files: ModelsFiles = ModelsFiles()) -> ModelsSummary:
    """Makes or locates the three models, loads each once as a check, and writes the manifest.

    Weights of a local folder or a hub cache stay where they are: the manifest points to them and
    holds their digest, so that changed weights are noticed. A registered version is copied, so an
    alias is resolved here, once.

    Raises ConfigurationError if a folder or hub id does not give a causal LM; TrackingError if the
    registry does not have a version, or cannot be read.
    """
    import torch

    from astra_core.engine.memory import keep_freed_memory
    from astra_core.models.pretrained import threads_for, weights_digest

    keep_freed_memory()
    torch.set_num_threads(threads_for(2_000_000, setup.num_threads))
    sources = setup.sources
    entries: dict[str, ModelEntry] = {}
    counts: dict[str, int] = {}
    with draft_folder_of(files.base) as draft:
        if any(source.source == "builtin" for source in sources.values()):
            _make_builtin(setup.builtin, setup.seed, draft / "builtin")
        for role, source in sources.items():
            path, parent = _locate(source, draft, model_name=setup.registered_as)
            is_outside = not path.is_relative_to(draft)
            counts[role] = _prove(path, source).num_parameters()
            entries[role] = ModelEntry(
                path=str(_below(Path.cwd(), path) if is_outside else path.relative_to(draft)),
                is_outside=is_outside,
                digest=weights_digest(path),
                source=source.source,
                revision=source.revision,
                parent=parent,
            )
        write_manifest(entries, draft)
    return ModelsSummary({role: source.source for role, source in sources.items()}, counts)


def _prove(folder: Path, source: ModelSource) -> Any:
    """The model, after its folder and what was loaded from it were checked."""
    from astra_core.models.pretrained import load_pretrained
    from tasks.sources.folder_checks import check_folder, check_model

    try:
        check_folder(folder)
        model, tokenizer = load_pretrained(folder)
        check_model(model, tokenizer, folder)
    except ConfigurationError as error:
        if source.source != "builtin":
            raise
        msg = "models.builtin must make a model that can be used, got NaN or worse; lower its lr"
        raise ConfigurationError(msg) from error
    return model


def _make_builtin(config: LanguageModelConfiguration, seed: int, folder: Path) -> None:
    from tasks.builtin.shipped import copy_model, shipped_model

    shipped = shipped_model(config, seed=seed)
    if shipped is not None:
        copy_model(shipped, folder)
        return
    with progress("training the builtin model", total=1000) as advance:
        done = 0

        def report(step: int, total: int) -> None:
            nonlocal done
            share = round(1000 * step / total)
            advance(share - done)
            done = share

        model, tokenizer = make_language_model(config, seed=seed, progress=report)
    save_language_model(model, tokenizer, folder)


def _locate(source: ModelSource, draft: Path, *, model_name: str) -> tuple[Path, Parent | None]:
    """Where a model is, in ``draft`` or outside, and which earlier attacker it is, if any."""
    if source.source == "builtin":
        return draft / "builtin", None
    if source.source == "version":
        from tasks.tracking.lineage.parents import copy_version

        folder = draft / f"version_{source.version}"
        return folder, copy_version(model_name, str(source.version), folder)
    if source.source == "folder" and source.path is not None:
        path = source.path.resolve()
        return path, _parent_in(path)
    from astra_core.models.folders import hub_folder

    return hub_folder(str(source.repository), str(source.revision)), None


def _below(project: Path, path: Path) -> Path:
    """Without the project's own path where it is inside, so that the project can be moved."""
    return path.relative_to(project) if path.is_relative_to(project) else path


def _parent_in(folder: Path) -> Parent | None:
    """The attacker that an earlier training exported to this folder, or None for another model."""
    try:
        note = read_record(folder / ATTACKER_FILE, AttackerNote, keys=["run_key"])
    except DataError:
        return None
    return Parent(digest=note.digest, run_key=str(note.run_key))
