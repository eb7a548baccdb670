"""On a machine that is too slow for CI, slow tests that begin too late are skipped, and say so."""

import os
import subprocess
import sys

import pytest
from pages import ROOT

# A slow test and a quick one of a file that imports little.
TESTS = (
    "tests/astra_core/rewards/test_novelty.py::test_counts_are_the_same_in_every_process",
    "tests/astra_core/metrics/test_words.py",
)


@pytest.mark.slow
@pytest.mark.parametrize(("began", "is_skipped"), [("0", True), (None, False)])
def test_slow_tests_are_skipped_once_their_minutes_are_over(began, is_skipped):
    own = {"ASTRA_SLOW_MINUTES": "60"} | ({} if began is None else {"ASTRA_TESTS_BEGAN": began})
    rest = {name: value for name, value in os.environ.items() if not name.startswith("ASTRA_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not gpu", *TESTS]
    done = subprocess.run(
        command, cwd=ROOT, env=rest | own, check=False, capture_output=True, text=True
    )

    assert 0 == done.returncode, done.stdout
    assert is_skipped == ("ASTRA_SLOW_MINUTES=60: the time for slow tests is over" in done.stdout)
    assert is_skipped == ("1 skipped" in done.stdout)
    assert "passed" in done.stdout
