import json
import shutil
from pathlib import Path

import pytest
from played_service import PlayedService
from registry_project import enter_project, prompt_table, register, write_project

from astra_core.rollout import Prompt
from astra_core.services.pointer import ServicePointer, leave_pointer
from astra_core.services.remote_trainer import RemoteTrainer
from tasks.params.schema import Params
from tasks.promotion.decision import promote_attacker, rollback
from tasks.promotion.smoke import why_unusable
from tasks.stages import registration
from tasks.tracking.registry import registration as recording
from tasks.tracking.registry.versions import aliases_of, checkpoint_folder
from tasks.tracking.store import connect


def register_pointer(seed, **reports):
    """A version whose weights are at a service, registered by the stage."""
    write_project(Path.cwd(), seed=seed, **reports)
    options = {"address": "http://127.0.0.1:1", "base_model": "tiny"}
    own = {"trainer": "remote", "options": options, "path": "a/b", "state": "s", "base": "0"}
    leave_pointer(ServicePointer(**own), Path("models/attacker"))
    return register().version


@pytest.fixture
def version(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    # Pictures and page of a version are half of its registration, and decide nothing.
    monkeypatch.setattr(recording, "draw_plots", lambda *_, **__: [])
    monkeypatch.setattr(registration, "renew_report", lambda *_, **__: None)
    return connect().get_model_version("attacker", register_pointer(0))


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


def test_versions_at_a_service_are_promoted_and_rolled_back(version, monkeypatch):
    reach(monkeypatch)
    rates = {0: 0.6, 1: 0.9}

    def evaluate(folder, _):
        seed = int(json.loads((folder / "astra.json").read_text())["digest"][:2])
        return {}, prompt_table(rate=rates[seed], baseline=0.0).query("role == 'attacker'")

    means = {"evaluate": evaluate, "draw": lambda number: [Prompt(f"p{number}", "why now")]}
    assert promote_attacker(Params(), **means).promoted
    second = register_pointer(1, rate=0.9, run_key="0001" * 16)
    assert promote_attacker(Params(), **means).promoted
    assert second == aliases_of(connect(), "attacker")["champion"]

    assert "1" == rollback("attacker").champion_version
    assert "1" == aliases_of(connect(), "attacker")["champion"]


def test_a_version_that_the_service_does_not_sample_from_is_not_promoted(version, monkeypatch):
    service = reach(monkeypatch)
    service.fails, service.saved["s"] = range(1, 100), ({}, {})
    decision = promote_attacker(Params())

    assert not decision.promoted
    assert "must load and write" in decision.summary()
