"""Seconds of the default run and of each of its stages, and the share in which models work.

``python -m benchmarks default_run`` runs the stages that ``make run`` does before registration in a
copy of the project, each in a process of its own, then all of ``astra run`` in another copy, and
prints a table. Models work while they sample, read contexts, are trained or are pretrained; the
rest is starting Python, loading libraries and models, reading and checking data, scoring, writing,
and what Prefect, DVC and MLflow do around the stages. ``--set key=value`` changes params.yaml in
the copies.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from astra_core.errors.arguments import LineParser
from benchmarks.copies import STAGES, copy_project, run_python
from tasks.reporting.tables import markdown

HEADER = ("stage of the default run", "seconds", "of which models work")
# The others run no model.
WATCHED = frozenset({"models", "rollouts", "training", "evaluation"})


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the stages have run and their table is printed."""
    parser = LineParser(prog="python -m benchmarks default_run", description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    changes = parser.parse_args(arguments).set
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        spent = stage_seconds(Path(folder), *changes)
        sys.stdout.write(f"{table(spent, run_seconds(Path(other), *changes))}\n")
    return 0


def stage_seconds(folder: Path, *changes: str) -> dict[str, tuple[float, float]]:
    """For each stage the seconds of its process, and those in which models work.

    Args:
        folder: There, and empty; the project is copied into it.
        changes: Of params.yaml, each as ``key=value``.
    """
    copy_project(folder, *changes)
    found = {}
    for stage in STAGES:
        told, start = folder / f"{stage}.json", time.perf_counter()
        watched = ("benchmarks.watched_stage", stage, str(told))
        run_python(folder, "-m", *(watched if stage in WATCHED else ("tasks", stage)))
        wall = time.perf_counter() - start
        found[stage] = (wall, json.loads(told.read_text()) if told.exists() else 0.0)
    return found


def run_seconds(folder: Path, *changes: str) -> float:
    """Seconds of the whole pipeline, with registration and decision, from an empty copy.

    Args:
        folder: There, and empty; the project is copied into it.
        changes: Of params.yaml, each as ``key=value``.
    """
    copy_project(folder, *changes)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # noqa: S607 - as DVC finds it
    start = time.perf_counter()
    run_python(folder, "-c", "from flows.cli import main; main()", "run")
    return time.perf_counter() - start


def table(spent: Mapping[str, tuple[float, float]], whole: float) -> str:
    """A Markdown table of the stages, their sum and the whole run, with the time of models.

    Args:
        spent: For each stage its seconds, and those in which models work.
        whole: Seconds of the whole run, whose models do the same work.
    """
    walls, works = zip(*spent.values(), strict=True)
    rows = [
        *spent.items(),
        ("these stages", (sum(walls), sum(works))),
        ("astra run", (whole, sum(works))),
    ]
    return markdown(
        HEADER,
        [(name, f"{wall:.1f}", f"{work:.1f} ({work / wall:.0%})") for name, (wall, work) in rows],
    )
