"""What ``astra trial`` foretells beside what a run takes: ``python -m benchmarks forecast``.

In a copy of the project the first stages run, then the trial, then rollouts, training and
evaluation, each in a process of its own. ``--preset NAME`` and ``--set KEY=VALUE`` change
params.yaml in the copy, whose folder is another one: paths in them must be absolute.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from astra_parts.arguments import LineParser
from benchmarks.copies import STAGES, copy_project, run_python
from benchmarks.measures.overhead import spent_by
from tasks.machine.tables import markdown

HEADER = ("figure", "foretold", "taken", "taken / foretold")
FIRST, FORETOLD = STAGES[:3], STAGES[3:]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the stages have run and the table is printed."""
    parser = LineParser(prog="python -m benchmarks forecast", description=__doc__)
    parser.add_argument("--preset", metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_project(folder, *asked.set, preset=asked.preset)
        for stage in FIRST:
            run_python(folder, "-m", "tasks", stage)
        words = ("-c", "from flows.start import main; main()", "trial", "--json")
        foretold = json.loads(run_python(folder, *words))
        taken = {stage: measure_stage(folder, stage) for stage in FORETOLD}
    print(table(foretold, taken))
    return 0


def measure_stage(folder: Path, stage: str) -> dict[str, float]:
    """What one stage of the copy took: seconds, replies of a local target, bytes at the most."""
    told = folder / f"{stage}.json"
    run = partial(run_python, folder, "-m", "benchmarks.watched_stage", stage, str(told))
    return {"seconds": spent_by(run).wall, **json.loads(told.read_text())}


def table(foretold: Mapping[str, Any], taken: Mapping[str, Mapping[str, float]]) -> str:
    """The table of time, replies and memory.

    Args:
        foretold: The record of the trial.
        taken: What each stage took, by its name.
    """
    run, peak = foretold["run"], foretold["peak_bytes"]
    seconds, replies = (sum(own[key] for own in taken.values()) for key in ("seconds", "replies"))
    held = taken["training"]["peak_bytes"]
    rows = (
        ("minutes", run["seconds"] / 60, seconds / 60, ".1f"),
        ("replies of the target", run["calls"], replies, ",.0f"),
        ("MiB in training", peak / 2**20, held / 2**20, ",.0f"),
    )
    cells = [
        (name, f"{own:{form}}", f"{other:{form}}", f"{other / own:.2f}")
        for name, own, other, form in rows
    ]
    return markdown(HEADER, cells)
