"""A version of the registry as a Hugging Face folder, with its weights fetched."""

import shutil
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.files import draft_folder_of
from astra_core.models.folders import AGENTS, FORMAT
from astra_core.models.language_model import LanguageModel
from astra_parts.services.pointer import ServicePointer, bring, read_pointer
from tasks.records.models import read_model_paths
from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.parents import copy_version, version_number
from tasks.tracking.registry.versions import checkpoint_folder
from tasks.tracking.store import connect, store_errors


def export_version(name: str, wanted: str, folder: Path, *, base: Path) -> None:
    """Writes the attacker of a version with all its weights.

    ``base``: the folder that the models stage wrote, with the base of weights at a service.

    Raises ConfigurationError if the folder has files, or the weights adapt a base other than that
    here; TrackingError if there is no such version; TrainingError if the service does not give the
    weights away.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        msg = f"--folder must be new or empty, got {folder}; name another"
        raise ConfigurationError(msg)
    number = version_number(name, wanted)
    if number is None:
        msg = f"version '{wanted}' of '{name}' must be in the registry, got none; see astra history"
        raise TrackingError(msg)
    with store_errors():
        client = connect()
        version = client.get_model_version(name, number)
        with checkpoint_folder(client, version) as source:
            pointer = read_pointer(source)
            if pointer is not None:
                _bring(pointer, source, folder, base=base)
                return
    with draft_folder_of(folder) as draft:
        copy_version(name, number, draft)


def _bring(pointer: ServicePointer, source: Path, folder: Path, *, base: Path) -> None:
    model = LanguageModel.load(read_model_paths(base)["attacker"])
    bring(pointer, model)
    with draft_folder_of(folder) as draft:
        model.save(draft)
        # Which agent plays which turn, and how conversations are read.
        for note in (AGENTS, FORMAT):
            if (source / note).is_file():
                shutil.copy(source / note, draft)
