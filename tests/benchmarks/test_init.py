import os
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from tasks.machine.thread_waits import FREE, SHARED

ROOT = Path(__file__).parents[2]
ASKED = "import os, sys, benchmarks; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"


# By whether the cores are free now.
CHOSEN = {f"{waits['GOMP_SPINCOUNT']} False" for waits in (FREE, SHARED)}


@pytest.mark.wide
@each_row(("own", "expected"), [(None, CHOSEN), ("7", {"7 False"})])
def test_threads_wait_as_in_a_stage_before_torch_is_loaded(own, expected):
    environment = {name: text for name, text in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if own is not None:
        environment["GOMP_SPINCOUNT"] = own
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() in expected
