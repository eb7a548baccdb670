import os
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from tasks.machine.garbage import YOUNG

ROOT = Path(__file__).parents[3]

# What is registered first is called last.
CODE = """
import atexit, gc, runpy, sys
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 1000))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.real
@each_row(
    "command",
    [
        ["tasks", "--list"],
        ["tasks.pipeline.reproduction", "--help"],
        ["tasks.pipeline.point", "--help"],
        ["tasks.promotion.reevaluation", "--help"],
        ["flows.cli", "--help"],
        ["flows.servers.prefect_server", "--help"],
        ["tasks.serving.fine_tuning.worker", "there is none", "job"],
        ["flows.orchestration.fine_tuning"],
    ],
)
def test_a_process_collects_rarely_and_not_at_its_end(tmp_path, command):
    done = _run(CODE, *command, folder=tmp_path)

    assert f"{YOUNG} True" == done.stdout.splitlines()[-1]


# Held by a cycle, as MLflow holds its own.
OPEN = """
from pathlib import Path
from tasks.machine.garbage import collect_rarely
collect_rarely()
{opened}
held = [opened]
held.append(held)
del held, opened
"""


@pytest.mark.parametrize(
    "opened",
    [
        (
            "from tasks.tracking.store import connect as store\n"
            "opened = store()\nopened.create_experiment('a')"
        ),
        (
            "from astra_parts.targets.kept import KeptReplies\n"
            "opened = KeptReplies(Path('kept.sqlite'))\nopened.use(['k'], account='run')"
        ),
        "from tasks.serving.fine_tuning.store import JobStore\nopened = JobStore(Path('jobs'))",
    ],
    ids=["runs", "replies", "jobs"],
)
@pytest.mark.real
def test_a_process_ends_with_its_databases_in_one_file_each(tmp_path, monkeypatch, opened):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    done = _run(OPEN.format(opened=opened), folder=tmp_path)

    assert 0 == done.returncode, done.stderr
    names = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert [name for name in names if name.endswith((".sqlite", ".db"))]
    assert [] == [name for name in names if name.endswith(("-wal", "-shm"))]


def _run(code, *arguments, folder):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
