import json
import shutil
from pathlib import Path

import pytest
from each_row import each_row
from memory_store import emptied, enter_memory_project, tables
from registry_project import (
    RUN_KEY,
    forget_machine,
    register,
    without_pictures,
    write_checkpoint,
    write_project,
)

from astra_core.config import MachineConfiguration, SystemConfiguration
from astra_core.models.folders import FORMAT, attacker_digest
from astra_core.models.pretrained import weights_digest
from tasks.params.models import ModelsConfiguration
from tasks.params.schema import RegistrationConfiguration
from tasks.records.models import Parent, read_manifest, read_model_paths
from tasks.stages.models import ModelsFiles, ModelsParams, ModelsSetup, prepare_models
from tasks.tracking.errors import DamagedStoreError, TrackingError
from tasks.tracking.lineage.parents import copy_version, version_keys, version_number
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

WEIGHTS = "model.safetensors"


def _write_digest(folder):
    """As the training stage does; returns it."""
    digest = attacker_digest(folder)
    note = json.loads((folder / "astra.json").read_text()) | {"digest": digest}
    (folder / "astra.json").write_text(json.dumps(note))
    return digest


@pytest.fixture(scope="module")
def registered(memory_folder, tmp_path_factory):
    """A project with two versions, and their digests; the first is champion, the second has a note.

    The note says how it reads its chat template.
    """
    digests = []
    with pytest.MonkeyPatch.context() as patch:
        folder = enter_memory_project(emptied(memory_folder), patch)
        without_pictures(patch)
        for seed in (0, 1):
            write_project(folder, seed=seed)
            if seed == 1:
                (folder / "models/attacker" / FORMAT).write_text('{"format": "separator"}')
            digests.append(_write_digest(folder / "models/attacker"))
            register()
        connect().set_registered_model_alias("attacker", "champion", "1")
    kept = shutil.copytree(folder, tmp_path_factory.mktemp("kept") / "project")
    return kept, tables(), digests


@pytest.fixture
def project(registered, memory_folder, monkeypatch):
    """The project, as it was left."""
    files, store, _ = registered
    shutil.copytree(files, emptied(memory_folder), dirs_exist_ok=True)
    return enter_memory_project(memory_folder, monkeypatch, store=store)


def prepare(attacker, base, **more):
    models = ModelsConfiguration.read({"attacker": attacker, **more}, where="models")
    machine, registration = MachineConfiguration(num_threads=1), RegistrationConfiguration()
    params = ModelsParams(0, models, machine, registration, SystemConfiguration())
    return prepare_models(ModelsSetup.of(params), ModelsFiles(base))


@each_row(
    ("wanted", "number"),
    [("1", "1"), ("2", "2"), ("champion", "1"), ("candidate", "2"), ("3", None), ("best", None)],
)
def test_numbers_and_aliases_are_looked_up(project, wanted, number):
    assert number == version_number("attacker", wanted)
    assert version_number("others", wanted) is None


def test_without_a_store_there_is_no_version_and_none_is_made(tmp_path, monkeypatch):
    forget_machine(tmp_path, monkeypatch)

    assert version_number("attacker", "champion") is None
    assert not (tmp_path / "mlflow.db").exists()


def test_a_version_is_copied_and_known_by_all_its_names(project, registered):
    parent = copy_version("attacker", "champion", Path("models/base/version_champion"))
    version = connect().get_model_version("attacker", "1")

    assert parent == Parent(
        digest=registered[-1][0],
        run_key=RUN_KEY,
        model_name="attacker",
        version="1",
        alias="champion",
        run_id=version.run_id,
    )
    assert copy_version("attacker", "2", Path("two")).digest == registered[-1][1]
    assert copy_version("attacker", "2", Path("two")).alias is None
    assert (registered[-1][0], RUN_KEY) == version_keys("attacker", "champion")


def test_a_version_without_keys_has_no_findings_of_its_own(project, monkeypatch):
    monkeypatch.setattr("tasks.tracking.lineage.parents._tags", lambda *_: {})
    with pytest.raises(TrackingError, match="version 1 of 'attacker' must have the tag astra"):
        version_keys("attacker", "champion")


def test_an_alias_that_moves_changes_nothing_of_what_was_taken(project):
    source = {"source": "version", "version": "champion"}
    target = {"source": "folder", "path": str(project / "models/attacker")}
    prepare(source, project / "one", target=target)
    before = read_manifest(project / "one")
    connect().set_registered_model_alias("attacker", "champion", "2")
    prepare(source, project / "two", target=target)

    assert before == read_manifest(project / "one")
    assert "1" == before.attacker.parent.version
    assert "2" == read_manifest(project / "two").attacker.parent.version
    assert before.attacker.digest != read_manifest(project / "two").attacker.digest


def test_the_reference_of_a_version_is_its_frozen_copy_or_one_of_its_own(project):
    source = {"source": "version", "version": 1}
    other = write_checkpoint(project / "my", seed=7)
    prepare(source, project / "own", target={"source": "folder", "path": str(other)})
    reference = {"source": "folder", "path": str(other)}
    prepare(source, project / "set", target=reference, reference=reference)
    own, its = (read_manifest(project / name) for name in ("own", "set"))

    assert own.attacker == own.reference
    assert not own.attacker.is_outside
    assert ("version", "folder") == (its.attacker.source, its.reference.source)
    assert weights_digest(other) == its.reference.digest != its.attacker.digest
    assert Path("my") == read_model_paths(project / "set")["reference"]


def test_an_earlier_attacker_in_a_folder_is_a_parent_too(project, registered):
    copy = shutil.copytree(project / "models/attacker", project / "my_attacker")
    folder = {"source": "folder", "path": str(copy)}
    prepare(folder, project / "base", target=folder)
    parent = read_manifest(project / "base").attacker.parent

    assert (registered[-1][1], None) == (parent.digest, parent.version)
    assert parent.run_key == json.loads((copy / "astra.json").read_text())["run_key"]
    (copy / "astra.json").unlink()
    prepare(folder, project / "plain", target=folder)
    assert read_manifest(project / "plain").attacker.parent is None


@each_row("wanted", ["9", "previous"])
def test_a_version_that_is_not_there_is_one_clear_line(project, wanted):
    words = f"version '{wanted}' of 'attacker' must be in the registry, got none; 'astra history'"
    with pytest.raises(TrackingError, match=words) as refusal:
        prepare({"source": "version", "version": wanted}, project / "base")

    assert 1 == len(str(refusal.value).splitlines())
    assert not (project / "base").exists()


def test_other_weights_than_were_registered_are_refused(project, registered):
    connect().set_model_version_tag("attacker", "1", "astra.checkpoint_digest", "0" * 64)
    with pytest.raises(TrackingError, match="version 1 of 'attacker' must have the weights that"):
        copy_version("attacker", "1", project / "base")


def test_a_store_that_cannot_be_read_is_one_clear_line(tmp_path, monkeypatch):
    forget_machine(tmp_path, monkeypatch)
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(DamagedStoreError) as refusal:
        copy_version("attacker", "champion", tmp_path / "base")

    assert 1 == len(str(refusal.value).splitlines())
