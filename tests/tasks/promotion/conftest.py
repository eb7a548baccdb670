import pytest
from decisions import promote, register_another
from memory_store import kept_project, restored_project
from registry_project import enter_project, register, without_pictures, write_project


@pytest.fixture
def project(candidate_in_memory):
    """A project whose first candidate is registered, in memory."""
    return candidate_in_memory


@pytest.fixture(scope="session")
def promoted_once(registered, memory_folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        restored_project(registered, memory_folder, patch)
        promote()
        return kept_project(memory_folder, tmp_path_factory)


@pytest.fixture
def championed(promoted_once, memory_folder, monkeypatch):
    """A project whose first version is champion, in memory."""
    return restored_project(promoted_once, memory_folder, monkeypatch)


@pytest.fixture(scope="session")
def promoted_twice(promoted_once, memory_folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        register_another(restored_project(promoted_once, memory_folder, patch), 1, rate=0.9)
        promote()
        return kept_project(memory_folder, tmp_path_factory)


@pytest.fixture
def succeeded(promoted_twice, memory_folder, monkeypatch):
    """A project whose second version is champion after the first, in memory."""
    return restored_project(promoted_twice, memory_folder, monkeypatch)


@pytest.fixture
def project_on_disk(tmp_path, monkeypatch):
    """The same with a SQLite file."""
    write_project(enter_project(tmp_path, monkeypatch))
    without_pictures(monkeypatch)
    register()
    return tmp_path
