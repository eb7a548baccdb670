"""Seconds of every stage of the default run, and how many of them models work in.

``python -m benchmarks.default_run`` runs the stages that ``make run`` does before registration in a
copy of the project, each in a process of its own, and prints a table. Models work while they
sample, read contexts, are trained or are pretrained; the rest is starting Python, loading libraries
and models, reading and checking data, scoring, and writing. What Prefect and DVC take around the
stages comes on top. ``--set key=value`` changes params.yaml in the copy.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.copies import STAGES, copy_project, run_python
from benchmarks.figures import markdown

HEADER = ("stage of the default run", "seconds", "of which models work")
# The others run no model.
WATCHED = frozenset({"models", "rollouts", "training", "evaluation"})


def main() -> None:
    """Runs the stages and prints their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    changes = parser.parse_args().set
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{table(stage_seconds(Path(folder), *changes))}\n")


def stage_seconds(folder: Path, *changes: str) -> dict[str, tuple[float, float]]:
    """Of each stage the seconds of its process, and those in which models work.

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


def table(spent: Mapping[str, tuple[float, float]]) -> str:
    """The stages and their sum, in markdown."""
    walls, works = zip(*spent.values(), strict=True)
    rows = [*spent.items(), ("all", (sum(walls), sum(works)))]
    return markdown(
        HEADER,
        [(name, f"{wall:.1f}", f"{work:.1f} ({work / wall:.0%})") for name, (wall, work) in rows],
    )


if __name__ == "__main__":
    main()
