import shutil
from pathlib import Path

import pytest
from decisions import aliases, fought, promote, tags
from played_service import PlayedService
from registry_project import register, write_checkpoint, write_note, write_project

from astra_core.models.folders import attacker_digest
from astra_parts.services.pointer import ServicePointer, leave_pointer
from astra_parts.services.remote_trainer import RemoteTrainer
from tasks.params.schema import Params
from tasks.promotion.decision import promote_attacker, rollback
from tasks.records.receipt import RECEIPT
from tasks.serving.smoke import why_unusable, write_probes
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG, checkpoint_folder
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


def leave_for_service(folder, seed=0):
    """Puts the address of weights at a service into the folder of a checkpoint."""
    options = {"address": "http://127.0.0.1:1", "base_model": "tiny"}
    own = {"trainer": "remote", "options": options, "path": "a/b", "state": "s", "base": str(seed)}
    leave_pointer(ServicePointer(**own), folder)
    write_note(folder, value=float(seed))


@pytest.fixture
def version(candidate_in_memory):
    """A version whose weights are at a service."""
    found = connect().get_model_version("attacker", "1")
    with checkpoint_folder(connect(), found) as folder:
        leave_for_service(folder)
        digest = attacker_digest(folder)
    RECEIPT.unlink()
    connect().set_model_version_tag("attacker", "1", CHECKPOINT_DIGEST_TAG, digest)
    return connect().get_model_version("attacker", "1")


def test_a_version_writes_by_our_code_and_never_by_what_lies_beside_its_weights(
    candidate_in_memory,
):
    version = connect().get_model_version("attacker", "1")
    folder = Path(connect().get_model_version_download_uri("attacker", "1"))
    (folder / "attacker_pyfunc.py").write_text("open('ran', 'w')\nraise SystemExit\n")
    note = folder / "MLmodel"
    code = "loader_module: mlflow.pyfunc.model"
    note.write_text(note.read_text().replace(code, "loader_module: attacker_pyfunc"))
    assert why_unusable(connect(), version) is None
    assert not Path("ran").exists()

    next(folder.rglob("model.safetensors")).write_bytes(b"damaged")
    told = why_unusable(connect(), version)
    assert told.startswith("version 1 must load and write, got TrackingError: version 1 of ")


def reach(monkeypatch):
    """The service that the pointers lead to."""
    service = PlayedService()
    service.published["a/b"] = service.published[None]
    monkeypatch.setattr(RemoteTrainer, "connected", staticmethod(lambda *_, **__: service))
    return service


def test_a_version_at_a_service_is_usable_where_the_service_samples(version, monkeypatch):
    service = reach(monkeypatch)

    assert why_unusable(connect(), version) is None
    assert 2 == service.asked["draw"]
    service.fails = range(1, 100)
    service.saved["s"] = ({}, {})
    told = why_unusable(connect(), version)
    assert told.startswith("version 1 must load and write, got ")
    assert "\n" not in told


def test_a_version_whose_files_are_gone_is_not_usable(version):
    with checkpoint_folder(connect(), version) as folder:
        shutil.rmtree(folder.parents[1])

    assert why_unusable(connect(), version).startswith("version 1 must load and write, got ")


@pytest.mark.wide
def test_versions_at_a_service_are_registered_promoted_and_rolled_back(
    project_on_disk, monkeypatch
):
    reach(monkeypatch)
    for seed in (1, 2):
        write_project(project_on_disk, seed=seed, rate=0.9, run_key=f"{seed:04d}" * 16)
        leave_for_service(project_on_disk / "models/attacker", seed)
        assert f"{seed + 1}" == register().version
        assert promote(evaluate=fought({1: 0.5, 2: 0.9})).promoted

    assert "2" == rollback("attacker").champion_version
    assert "2" == aliases()["champion"]


def test_a_version_that_the_service_does_not_sample_from_is_not_promoted(version, monkeypatch):
    service = reach(monkeypatch)
    service.fails, service.saved["s"] = range(1, 100), ({}, {})
    decision = promote_attacker(Params())

    assert not decision.promoted
    assert "must load and write" in decision.summary()
    assert '{"name": "smoke test", "value": "failed"' in tags("1")["promotion.rules"]


def test_a_checkpoint_writes_whatever_lies_beside_it(tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    found = write_probes(folder, {"max_context_tokens": 16})

    assert [str, str] == [type(probe) for probe in found]
    assert all(len(probe.split()) <= 8 for probe in found)
