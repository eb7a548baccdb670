"""What a training of the stage left, for the guides' tests."""

import csv
import json
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.__main__ import main


@dataclass(frozen=True)
class Ran:
    """What ``python -m tasks training`` left.

    Attributes:
        status: Its exit status.
        said: Every line on the screen.
        report: ``reports/training.json``, if it was written.
        rows: The table of updates, as text by column.
    """

    status: int
    said: list[str]
    report: dict[str, Any]
    rows: list[dict[str, str]]

    @property
    def line(self):
        """The one error that was told; transformers' bars are silent in a process of its own."""
        errors = [line for line in self.said if line.startswith("error: ")]
        assert 1 == len(errors), self.said
        return errors[0]


def left(status, said):
    """What lies in the working folder after a training."""
    report, table = Path("reports/training.json"), Path("reports/training_steps.csv")
    found = json.loads(report.read_text("utf-8")) if report.exists() else {}
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines())) if table.exists() else []
    return Ran(status, said.splitlines(), found, rows)


def train_apart(**environment):
    """How the stage ends in a process of its own: its status, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        # A lock that another thread holds now would never be free in the child.
        tqdm.set_lock(threading.RLock())
        os.environ |= environment
        status = 1
        try:
            status = main(["training"])
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def forget_training():
    """Removes what a training has left, its run included."""
    for made in ("runs", "models/attacker", "models/checkpoint", "reports"):
        shutil.rmtree(made, ignore_errors=True)
