"""One thread: two cores are shared, and a second thread that waits turns seconds into minutes."""

import functools
import gc
import logging
import os
import re
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import quick_tier

# Ten thousand tests are millions of objects that stay; see tasks/machine/garbage.py.
gc.set_threshold(5_000, *gc.get_threshold()[1:])
# What is flushed survives a power cut, which no test has; killed processes need no flush. Where
# it is called, test_files tells.
os.fsync = lambda _: None
# Trio's plug-in of Hypothesis would be loaded, and no test uses it.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
# The sets of every process that a test starts are in an order of their own, as a user's are.
os.environ["PYTHONHASHSEED"] = "random"


def _frames_uncollected(frames=sys._current_frames):
    """All threads' frames, which slipcover asks for, without a look for garbage meanwhile.

    Python 3.11 holds a lock there, and a finaliser that lets another thread run would end in a
    deadlock now and then.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return frames()
    finally:
        if is_collecting:
            gc.enable()


sys._current_frames = _frames_uncollected

HERE = Path(__file__).parent
TIER_OF_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.(real|wide|gpu)\b", re.MULTILINE)
TIERS_LEFT_OUT = re.compile(r"not (real|wide|gpu)\b")
# With workers, what takes minutes comes before thousands of quick tests: it would else be waited
# for by all others.
FIRST = ("benchmarks", "flows", "tasks", "guides", "architecture", "bad_input", "end_to_end")
# Files that take a minute or two in a folder of quick ones: the last would be waited for, too.
LONG = frozenset(
    f"test_{name}.py"
    for name in ("state", "other_device", "text_trainer", "distributed", "sharding", "on_ray")
)


def pytest_configure(config):
    config.pluginmanager.register(quick_tier)
    if hasattr(config, "workerinput") or getattr(config.option, "dist", "no") == "no":
        # Who only hands tests to workers does without.
        import torch

        torch.set_num_threads(1)


def pytest_ignore_collect(collection_path, config):
    """A file of other tiers alone is not even read: importing what it needs takes seconds."""
    left_out = _left_out(config)
    is_file = bool(left_out) and collection_path.suffix == ".py"
    mark = TIER_OF_FILE.search(collection_path.read_text()) if is_file else None
    return True if mark and mark[1] in left_out else None


def pytest_pycollect_makeitem(collector, name, obj):
    """A test of another tier, which nobody has named, is no item: that is a fifth of them all."""
    if not name.startswith("test_"):
        return None
    left_out = _left_out(collector.config)
    marks = getattr(obj, "pytestmark", ())
    is_named = any(name in argument for argument in collector.config.args)
    return [] if not is_named and any(mark.name in left_out for mark in marks) else None


def _left_out(config):
    return TIERS_LEFT_OUT.findall(config.option.markexpr)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing that is collected is garbage, and looking for it takes a quarter of the time."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items):
    """With workers (``-n 2``), which get whole files, the slowest files come first."""
    items.sort(key=lambda item: _rank(item.path))


@functools.cache
def _rank(path):
    if path.name in LONG:
        return FIRST.index("benchmarks")
    folder = path.relative_to(HERE).parts[0]
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


@pytest.fixture(autouse=True)
def _tables_copied(_tables):
    """MLflow makes a database by all its migrations, for seconds; the next ones are copies."""
    utils = sys.modules.get("mlflow.store.db.utils")
    if utils is None or utils._initialize_tables is _tables:
        return
    _tables.make = utils._initialize_tables
    for module in (utils, sys.modules.get("mlflow.store.model_registry.sqlalchemy_store")):
        if module is not None:
            module._initialize_tables = _tables


@pytest.fixture(scope="session")
def _tables(tmp_path_factory):
    return _Tables(tmp_path_factory.mktemp("tables") / "empty.db")


class _Tables:
    """Fills a new SQLite file: the first one by MLflow itself, which ``make`` is."""

    def __init__(self, kept):
        self.kept = kept
        self.make = None

    def __call__(self, engine):
        path = engine.url.database
        in_memory = not path or path.startswith((":memory:", "file:"))
        if engine.url.get_backend_name() != "sqlite" or in_memory:
            self.make(engine)
        elif self.kept.exists():
            _copy_database(self.kept, path)
        else:
            self.make(engine)
            _copy_database(path, self.kept)


def _copy_database(source, path):
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(path)) as new:
        mode = new.execute("PRAGMA journal_mode").fetchone()[0]
        old.backup(new)
        new.execute(f"PRAGMA journal_mode = {mode}")


@pytest.fixture(scope="module", autouse=True)
def _imports_kept():
    """What a file has imported stays: looking through all of it for garbage takes a second."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    """Hypothesis asks at the end who refers to what, and is told nothing of what is frozen."""
    gc.unfreeze()


def pytest_unconfigure():
    """Each file's garbage was collected after it: pytest's five looks through all are in vain."""
    gc.freeze()


class _Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def logged():
    """The warnings and errors that are logged while a test runs, one line each."""
    kept = _Kept()
    logging.getLogger().addHandler(kept)
    yield kept.lines
    logging.getLogger().removeHandler(kept)


@pytest.fixture
def restored(monkeypatch):
    """What a command called in this process changes of it is as it was, afterwards."""
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    mask = os.umask(0o022)
    os.umask(mask)
    # Goes back to the folder of before.
    monkeypatch.chdir(Path.cwd())
    yield
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def _dvc_folder(tmp_path_factory):
    from dvc.repo import Repo

    folder = tmp_path_factory.mktemp("dvc")
    Repo.init(str(folder), no_scm=True).close()
    return folder / ".dvc"


@pytest.fixture
def dvc_project(_dvc_folder, tmp_path, monkeypatch):
    """The working folder, as ``dvc init --no-scm`` leaves it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    shutil.copytree(_dvc_folder, tmp_path / ".dvc")
    return tmp_path
