"""Projects whose store is in memory; each test finds them as if it were the first."""

import pytest
from memory_store import emptied, enter_memory_project, kept_project, restored_project
from registry_project import register, without_pictures, write_project


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("memory") / "project"


@pytest.fixture
def in_memory(memory_folder, monkeypatch):
    """A project in which nothing has happened."""
    return enter_memory_project(emptied(memory_folder), monkeypatch)


@pytest.fixture(scope="session")
def registered(memory_folder, tmp_path_factory):
    """A copy of the files, and the tables, of a project whose first candidate is registered."""
    with pytest.MonkeyPatch.context() as patch:
        write_project(enter_memory_project(emptied(memory_folder), patch))
        without_pictures(patch)
        register()
        return kept_project(memory_folder, tmp_path_factory)


@pytest.fixture
def candidate_in_memory(registered, memory_folder, monkeypatch):
    """A project whose first candidate is registered; other versions have no pictures either."""
    return restored_project(registered, memory_folder, monkeypatch)
