import subprocess
import sys

import pytest

from tasks.machine.garbage import YOUNG

# What is registered first is called last.
CODE = """
import atexit, gc, runpy, sys
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 1000))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    "command",
    [
        ["tasks", "--list"],
        ["tasks.pipeline.reproduction", "--help"],
        ["tasks.pipeline.point", "--help"],
        ["tasks.promotion.reevaluation", "--help"],
        ["flows.cli", "--help"],
        ["flows.servers.prefect_server", "--help"],
    ],
    ids=lambda command: command[0],
)
def test_a_process_collects_rarely_and_not_at_its_end(command):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command], capture_output=True, text=True, check=True
    )

    assert f"{YOUNG} True" == done.stdout.splitlines()[-1]
