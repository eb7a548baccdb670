import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKED = "import os, sys, benchmarks; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"


@pytest.mark.parametrize(("own", "expected"), [(None, "4000 False"), ("7", "7 False")])
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

    assert expected == done.stdout.strip()
