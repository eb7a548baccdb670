"""A version whose weights stay at a service, and one whose weights are here, in a real store."""

import json
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from played_service import PlayedService, adapters_of
from registry_project import enter_project, register, write_checkpoint, write_note, write_project

from astra_core.errors import ConfigurationError, TrainingError
from astra_core.models.language_model import LanguageModel
from astra_parts.services.pointer import ServicePointer, leave_pointer, parameters_digest
from astra_parts.services.remote_trainer import RemoteTrainer
from flows.cli import run_command
from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.parents import copy_version
from tasks.tracking.registry.exports import export_version
from tasks.tracking.registry.versions import checkpoint_folder
from tasks.tracking.store import connect

ROLES = {"roles": ["opener", "presser"], "agents": {"presser": {"instruction": "Insist."}}}
BASE, ATTACKER = Path("models/base"), Path("models/attacker")


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """Version 1 is a pointer to weights at a service, version 2 has weights."""
    folder = tmp_path_factory.mktemp("registered")
    with pytest.MonkeyPatch.context() as patch:
        enter_project(folder, patch)
        write_project(folder)
        write_checkpoint(BASE / "target")
        pointer = ServicePointer(
            trainer="remote",
            options={"address": "http://127.0.0.1:1", "base_model": "tiny"},
            path="run/sampler_weights/one",
            state="state",
            base=parameters_digest(LanguageModel.load(BASE / "target")),
        )
        leave_pointer(pointer, ATTACKER)
        (ATTACKER / "agents.json").write_text(json.dumps(ROLES))
        write_note(ATTACKER)
        register()
        write_project(folder, seed=1)
        register()
    return folder


@pytest.fixture
def project(registered, monkeypatch):
    monkeypatch.chdir(registered)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.rmtree("out", ignore_errors=True)
    return registered


@pytest.fixture
def service(monkeypatch):
    """What the pointer leads to."""
    service = PlayedService()
    service.published["run/sampler_weights/one"] = service.published[None]
    connected = staticmethod(lambda *_, **__: service)
    monkeypatch.setattr(RemoteTrainer, "connected", connected)
    return service


def version(number):
    return connect().get_model_version("attacker", number)


@pytest.mark.real
def test_a_version_with_weights_is_copied(project):
    export_version("attacker", "2", Path("out"), base=BASE)

    with checkpoint_folder(connect(), version("2")) as folder:
        kept = (folder / "model.safetensors").read_bytes()
    assert kept == Path("out/model.safetensors").read_bytes()


@pytest.mark.real
def test_weights_at_a_service_are_brought_and_added_to_the_base(project, service):
    base = LanguageModel.load(BASE / "target")
    service.archives["run/sampler_weights/one"] = adapters_of(base)
    export_version("attacker", "1", Path("out"), base=BASE)

    assert parameters_digest(LanguageModel.load("out")) != parameters_digest(base)
    # Who plays which turn comes along.
    assert ROLES == json.loads(Path("out/agents.json").read_text())


@pytest.mark.real
def test_the_command_of_the_services_page_brings_the_champion(project, service, restored):
    root = Path(__file__).parents[4]
    shutil.copy(root / "params.yaml", project)
    service.archives["run/sampler_weights/one"] = adapters_of(LanguageModel.load(BASE / "target"))
    connect().set_registered_model_alias("attacker", "champion", "1")
    page = (root / "docs" / "services.md").read_text("utf-8")
    (command,) = [line for line in page.splitlines() if line.startswith("astra export ")]

    program, *words = shlex.split(command)
    assert ("astra", 0) == (program, run_command(words))
    assert parameters_digest(LanguageModel.load("exported/attacker"))
    connect().delete_registered_model_alias("attacker", "champion")


@pytest.mark.real
def test_a_service_that_keeps_its_weights_leaves_no_folder(project, service):
    with pytest.raises(TrainingError, match="the service must give its weights out"):
        export_version("attacker", "1", Path("out"), base=BASE)
    assert not Path("out").exists()


@pytest.mark.real
def test_a_pointer_cannot_be_served_or_trained_on_from(project):
    with pytest.raises(ConfigurationError, match="must hold weights, got a pointer"):
        copy_version("attacker", "1", Path("out"))
    assert not Path("out").exists()


@pytest.mark.real
def test_what_cannot_be_exported_is_one_line(project):
    with pytest.raises(TrackingError, match="version '9' of 'attacker' must be in the registry"):
        export_version("attacker", "9", Path("out"), base=BASE)
    with pytest.raises(ConfigurationError, match="--folder must be new or empty, got models"):
        export_version("attacker", "2", Path("models"), base=BASE)


@pytest.mark.real
def test_the_command_tells_what_it_wrote(project, restored, capfd):
    shutil.copy(Path(__file__).parents[4] / "params.yaml", project)

    assert 0 == run_command(["export", "2", "--folder", "out"])
    assert "out has the weights of attacker 2" in capfd.readouterr().out
    assert 2 == run_command(["export", "2", "--folder", "out"])


@pytest.mark.real
def test_what_a_registry_lacks_is_named_and_its_database_stays(project):
    """The database is intact: moving it away would lose every version in it."""
    with closing(sqlite3.connect("mlflow.db", isolation_level=None)) as rows:
        found = "version = 2"
        (run,) = rows.execute(f"SELECT run_id FROM model_versions WHERE {found}").fetchone()  # noqa: S608
        for place, column, wrong, named in (
            (f"registered_model_aliases WHERE {found}", "version", 99, r"version=99\) not found"),
            (f"model_versions WHERE {found}", "storage_location", "foo://bar/x", "for: foo://bar/"),
            (f"model_versions WHERE {found}", "storage_location", "/no/such", "got no such folder"),
            (f"runs WHERE run_uuid = '{run}'", "run_uuid", "gone", f"Run with id={run} not found"),
        ):
            table = place.partition(" ")[0]
            rowid, right = rows.execute(f"SELECT rowid, {column} FROM {place}").fetchone()  # noqa: S608
            set_it = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
            rows.execute(set_it, [wrong, rowid])
            with pytest.raises(TrackingError, match=named) as lacking:
                export_version("attacker", "candidate", Path("out"), base=BASE)
            assert "move" not in str(lacking.value)
            rows.execute(set_it, [right, rowid])
