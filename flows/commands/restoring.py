"""A version on disk again: ``astra restore`` and ``astra export``."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import DataError
from flows.commands.chronicle import client_and_lineage, model_name
from tasks.machine.console import quiet_libraries, say

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from tasks.tracking.lineage.chronicle import Lineage

_FILES = (Path("params.yaml"), Path("dvc.lock"))
_ATTACKER = Path("models/attacker")


def restore(
    version: Annotated[str, typer.Argument(help="A number, or an alias such as champion.")],
) -> None:
    """Put params.yaml, data and models of a version back, and prove them by their digests."""
    from flows.runs.turns import in_turn
    from tasks.pipeline.restoration import put_back
    from tasks.tracking.store import store_errors

    quiet_libraries()
    client, found = client_and_lineage(version)
    with store_errors():
        kept = _read_kept(client, found, model_name())
    # A run between two stages holds no output, but reads params.yaml again.
    with in_turn(waits=False):
        before = put_back(kept)
        for line in _proofs(found):
            say(line)
        if before is not None:
            files = " ".join(str(before / file) for file in _FILES if (before / file).is_file())
            say(f"{'undo':<13}cp {files} . && dvc checkout")
        for line in _input_changes():
            say(line)


def _read_kept(client: "MlflowClient", found: "Lineage", name: str) -> dict[Path, str]:
    """The files that registration kept beside the version's evaluation."""
    from tasks.tracking.artifacts import fetch, kept_files
    from tasks.tracking.registry.evidence import evaluation_folder
    from tasks.tracking.registry.versions import EVALUATION_KEY_TAG

    number, run_id = found.summary.version, found.summary.run_id
    tags = client.get_model_version(name, number).tags
    folder = evaluation_folder(tags.get(EVALUATION_KEY_TAG, ""))
    missing = {file.name for file in _FILES} - kept_files(client, run_id, folder)
    if missing:
        msg = (
            f"version {number} must have been registered with params.yaml and dvc.lock, got no "
            f"{' and no '.join(sorted(missing))}: it is of an earlier release; 'astra lineage "
            f"{number}' says what it has, and with a commit's dvc.lock 'dvc checkout' gets data"
        )
        raise DataError(msg)
    kept = {}
    for file in _FILES:
        with fetch(client, run_id, f"{folder}/{file.name}") as copy:
            kept[file] = copy.read_text(encoding="utf-8")
    return kept


def _proofs(found: "Lineage") -> Iterator[str]:
    """A line for each part that is the version's, and one about its code."""
    from astra_core.models.folders import attacker_digest
    from tasks.tracking.lineage.logged import data_digest
    from tasks.tracking.lineage.provenance import provenance

    number = found.summary.version
    parts = {("weights", _ATTACKER): {found.checkpoint_digest}}
    for data in found.data:
        # Versions of one run may have had other prompts, for tests alone.
        parts.setdefault((data.part, Path(data.path)), set()).add(data.digest)
    for (part, path), digests in parts.items():
        here = attacker_digest(path) if path == _ATTACKER else data_digest(path)
        if here not in digests:
            wanted = " or ".join(sorted(digest[:16] for digest in digests))
            msg = f"{path} must be that of version {number}, {wanted}, got {here[:16]}"
            raise DataError(msg)
        yield f"{part:<13}{path} is that of version {number}, {here[:16]}"
    commit, own = found.code.get("git.commit", ""), provenance()["git.commit"]
    if commit != own or found.code.get("git.dirty") == "true":
        yield f"{'code':<13}is of commit {own[:16]}; {found.code_line()} made the version"


def _input_changes() -> Iterator[str]:
    """A line for each file named in params.yaml that is another one than the version's."""
    from flows.runs.preparation import renew_pipeline
    from tasks.params.schema import read_params
    from tasks.pipeline.order import outside_inputs, stages
    from tasks.pipeline.reproduction import changes

    params = read_params()
    renew_pipeline(params)
    named = {str(path) for each in stages().values() for path in outside_inputs(each, params)}
    for why in dict.fromkeys(chain(*changes().values())):
        path, _, state = why.rpartition(" ")
        if path in named:
            yield f"{'input':<13}{path} is {state}: a run makes what follows from it anew"


def export(
    version: Annotated[
        str, typer.Argument(help="champion, candidate, previous or a number.")
    ] = "champion",
    *,
    folder: Annotated[Path, typer.Option(help="A new folder for the Hugging Face files.")],
) -> None:
    """Write a version's attacker with its weights, also from a service that gives them out."""
    from tasks.tracking.registry.exports import export_version

    quiet_libraries()
    name = model_name()
    export_version(name, version, folder, base=Path("models/base"))
    say(f"{folder} has the weights of {name} {version}")
