"""A project whose MLflow store is in memory: the real client and tables, and no database file."""

import functools
import shutil
import sqlite3
from contextlib import closing

from registry_project import forget_machine, without_pictures

_NAME = "file:store?mode=memory&cache=shared"
# With the driver named, it is a database elsewhere to our own code, which looks for no file.
ADDRESS = f"sqlite+pysqlite:///{_NAME}&uri=true&check_same_thread=false"


def enter_memory_project(folder, monkeypatch, *, store=None):
    """Makes ``folder`` the working folder, with the tables of ``store``, or empty ones.

    One process has one such store, whose artifacts lie in the folder that it was first made in.
    """
    forget_machine(folder, monkeypatch)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ADDRESS)
    tables = store or _empty_tables()
    with closing(sqlite3.connect(":memory:")) as source:
        source.deserialize(tables)
        source.backup(_connection())
    return folder


def emptied(folder):
    """The folder without what the test before left in it; somebody may still work in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def tables():
    """What the store holds, for ``enter_memory_project``."""
    return _connection().serialize()


def kept_project(folder, tmp_path_factory):
    """A copy of its files, and its tables, for ``restored_project``."""
    return shutil.copytree(folder, tmp_path_factory.mktemp("kept") / "project"), tables()


def restored_project(kept, folder, monkeypatch):
    """The folder as it was kept; its versions get no pictures."""
    files, store = kept
    shutil.copytree(files, emptied(folder), dirs_exist_ok=True)
    without_pictures(monkeypatch)
    return enter_memory_project(folder, monkeypatch, store=store)


@functools.cache
def _connection():
    """What keeps the store alive."""
    return sqlite3.connect(_NAME, uri=True, check_same_thread=False)


@functools.cache
def _empty_tables():
    from mlflow import MlflowClient

    _connection()
    MlflowClient(ADDRESS).search_experiments()
    return tables()
