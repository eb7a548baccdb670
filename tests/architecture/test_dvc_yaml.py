"""dvc.yaml says what the signatures and the import graph say."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.params.schema import read_params
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import drift, stages

ROOT = Path(__file__).parents[2]


def test_dvc_yaml_is_what_the_signatures_say():
    assert drift(ROOT / "dvc.yaml", params=read_params(ROOT / "params.yaml")) is None


def test_the_stages_are_in_the_order_of_the_drawing():
    assert list(STAGE_NAMES) == list(stages())


@pytest.mark.real
def test_the_command_finds_no_drift():
    done = subprocess.run(
        [sys.executable, "-m", "tasks", "--render", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
