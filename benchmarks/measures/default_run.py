"""Seconds of the default run and of each of its stages, and the share in which models work.

``python -m benchmarks default_run`` runs the stages that ``make run`` does in a copy of the
project, each in a process of its own, then all of ``astra run`` in another copy, and prints a
table. Models work while they sample, read contexts, are trained or are pretrained; the rest is
starting Python, loading libraries and models, reading and checking data, scoring and writing. The
last row is what ``astra run`` takes beyond its stages: Prefect, the tables that its first run
makes, DVC, and the decision about promotion. ``--set key=value`` changes params.yaml in the copies.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from astra_parts.arguments import LineParser
from benchmarks.copies import STAGES, copy_project, run_python
from benchmarks.measures.overhead import Spent, spent_by
from tasks.machine.tables import markdown

HEADER = ("stage of the default run", "seconds", "processor seconds", "of which models work")
# The others run no model.
WATCHED = frozenset({"models", "rollouts", "training", "evaluation"})
ALL = (*STAGES, "registration")


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one stage took.

    Attributes:
        spent: The time of its process.
        work: Wall-clock seconds in which models work.
    """

    spent: Spent
    work: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the stages have run and their table is printed."""
    parser = LineParser(prog="python -m benchmarks default_run", description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    changes = parser.parse_args(arguments).set
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        stages = stage_times(Path(folder), *changes)
        sys.stdout.write(f"{table(stages, run_time(Path(other), *changes))}\n")
    return 0


def stage_times(folder: Path, *changes: str) -> dict[str, StageTime]:
    """What each stage takes in a process of its own.

    Args:
        folder: There, and empty; the project is copied into it.
        changes: Of params.yaml, each as ``key=value``.
    """
    copy_project(folder, *changes)
    found = {}
    for stage in ALL:
        told = folder / f"{stage}.json"
        watched = ("benchmarks.watched_stage", stage, str(told))
        words = ("-m", *(watched if stage in WATCHED else ("tasks", stage)))
        spent = spent_by(partial(run_python, folder, *words))
        found[stage] = StageTime(
            spent, json.loads(told.read_text())["models"] if told.exists() else 0.0
        )
    return found


def run_time(folder: Path, *changes: str) -> Spent:
    """What the whole pipeline takes as ``astra run``, from an empty copy.

    Args:
        folder: There, and empty; the project is copied into it.
        changes: Of params.yaml, each as ``key=value``.
    """
    copy_project(folder, *changes)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # noqa: S607 - as DVC finds it
    words = ("-c", "from flows.cli import main; main()", "run")
    return spent_by(partial(run_python, folder, *words))


def table(stages: Mapping[str, StageTime], whole: Spent) -> str:
    """A Markdown table of the stages, their sum, the whole run and what is around the stages.

    Args:
        stages: What each stage took.
        whole: What the run took, whose models do the same work.
    """
    work = sum(one.work for one in stages.values())
    wall = sum(one.spent.wall for one in stages.values())
    processor = sum(one.spent.processor for one in stages.values())
    around = (f"{whole.wall - wall:.1f}", f"{whole.processor - processor:.1f}", "")
    rows = [
        *((name, *_row(one.spent, one.work)) for name, one in stages.items()),
        ("these stages", *_row(Spent(processor=processor, wall=wall), work)),
        ("astra run", *_row(whole, work)),
        ("around the stages", *around),
    ]
    return markdown(HEADER, rows)


def _row(spent: Spent, work: float) -> tuple[str, str, str]:
    return f"{spent.wall:.1f}", f"{spent.processor:.1f}", f"{work:.1f} ({work / spent.wall:.0%})"
