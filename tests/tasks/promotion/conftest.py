"""A project whose first candidate is registered."""

import shutil

import pytest
from registry_project import enter_project, register, write_project

import tasks.stages.registration
import tasks.tracking.registry.registration


@pytest.fixture(scope="package")
def registered(tmp_path_factory):
    """A project whose first candidate is registered; each test works in a copy."""
    folder = tmp_path_factory.mktemp("registered")
    with pytest.MonkeyPatch.context() as patch:
        enter_project(folder, patch)
        write_project(folder)
        register()
    return folder


@pytest.fixture
def project(registered, tmp_path, monkeypatch):
    folder = shutil.copytree(registered, tmp_path / "project")
    enter_project(folder, monkeypatch, is_empty=False)
    # Pictures and page of a version are half of its registration, and decide nothing.
    monkeypatch.setattr(tasks.tracking.registry.registration, "draw_plots", lambda *_, **__: [])
    monkeypatch.setattr(tasks.stages.registration, "renew_report", lambda *_, **__: None)
    return folder
