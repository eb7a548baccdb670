"""What a training of the stage left, for the guides' tests."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
