import shutil
from pathlib import Path

import pytest
from played_service import PlayedService
from registry_project import enter_project, register, write_project

from astra_core.services.pointer import ServicePointer, leave_pointer
from astra_core.services.remote_trainer import RemoteTrainer
from tasks.promotion.smoke import why_unusable
from tasks.tracking.store import connect
from tasks.tracking.versions import checkpoint_folder


@pytest.fixture
def version(tmp_path, monkeypatch):
    """A version whose weights are at a service, registered by the stage."""
    enter_project(tmp_path, monkeypatch)
    write_project(tmp_path)
    options = {"address": "http://127.0.0.1:1", "base_model": "tiny"}
    own = {"trainer": "remote", "options": options, "path": "a/b", "state": "s", "base": "0"}
    leave_pointer(ServicePointer(**own), Path("models/attacker"))
    register()
    return connect().get_model_version("attacker", "1")


def test_a_version_at_a_service_is_usable_where_the_service_samples(version, monkeypatch):
    service = PlayedService()
    service.published["a/b"] = service.published[None]
    monkeypatch.setattr(RemoteTrainer, "connected", staticmethod(lambda *_, **__: service))

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
