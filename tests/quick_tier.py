"""What ``make test`` promises of its tests: see CONTRIBUTING.md. What breaks it is marked ``real``.

A quick test starts no Python process, keeps no MLflow store, and updates weights once at most,
unless it lies where the update is the subject.
"""

import multiprocessing.util
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKS = ("real", "wide", "gpu")
UPDATE_IS_THE_SUBJECT = (
    "astra_core/training",
    "astra_core/algorithms",
    "astra_parts/algorithms",
    "astra_parts/schedules",
    "astra_parts/testing/contracts",  # of optimisers and schedules
)
OURS = re.compile(r"python[\d.]*|astra|torchrun|accelerate|prefect|mlflow|dvc")
RENDERER = "_ends_in_copy"  # of chat templates, for milliseconds

_done = {"processes": [], "stores": [], "updates": 0}


def is_quick(item):
    """Whether a person waits for the test."""
    return not any(next(item.iter_markers(mark), None) for mark in MARKS)


def pytest_configure():
    sys.addaudithook(note)
    start = multiprocessing.util.spawnv_passfds

    def spawn(path, *rest):
        _done["processes"].append(str(path))
        return start(path, *rest)

    multiprocessing.util.spawnv_passfds = spawn  # is no audited event


def note(event, arguments):
    if event == "subprocess.Popen" and OURS.fullmatch(Path(str(arguments[0])).name):
        _done["processes"].append(str(arguments[1]))
    elif event == "os.fork" and sys._getframe(1).f_code.co_name != RENDERER:
        _done["processes"].append("fork")
    elif event == "sqlite3.connect" and Path(str(arguments[0])).name == "mlflow.db":
        _done["stores"].append(str(arguments[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    begin()
    result = yield
    check(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    begin()
    with _updates_counted():
        result = yield
    folder = str(item.path.parent.relative_to(HERE))
    check(item, may_update=folder.startswith(UPDATE_IS_THE_SUBJECT))
    return result


def begin():
    _done.update(processes=[], stores=[], updates=0)


def _updates_counted():
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def count(*_):
        _done["updates"] += 1

    return register_optimizer_step_post_hook(count)


def check(item, *, may_update=True):
    if not is_quick(item):
        return
    broken = [f"starts {each[:200]}" for each in dict.fromkeys(_done["processes"])]
    broken += [f"keeps a store: {each}" for each in dict.fromkeys(_done["stores"])]
    if "memory_folder" in item.fixturenames:
        broken.append("keeps a store in memory")
    if _done["updates"] > 1 and not may_update:
        broken.append(f"updates weights {_done['updates']} times")
    if broken:
        pytest.fail(f"a quick test {'; '.join(broken)}: mark it real, or make it smaller", False)
