import pytest
from registry_project import enter_project, register, without_pictures, write_project


@pytest.fixture
def project(candidate_in_memory):
    """A project whose first candidate is registered, in memory."""
    return candidate_in_memory


@pytest.fixture
def project_on_disk(tmp_path, monkeypatch):
    """The same with a SQLite file."""
    write_project(enter_project(tmp_path, monkeypatch))
    without_pictures(monkeypatch)
    register()
    return tmp_path
