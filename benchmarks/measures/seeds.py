"""Attack success of the default settings for several seeds, for the table in the README.

``python -m benchmarks seeds 3 4 5`` copies the project into a temporary folder once per seed, runs
the stages from prompts to evaluation there and prints one row. Nothing in the project changes. The
data seed is set too: the settings were chosen on the default's prompts.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from astra_parts.arguments import LineParser, whole_number
from benchmarks.copies import STAGES, copy_project, run_python

HEADER = (
    "| seed | attack success, untrained | trained | unique probes "
    "| distinct-2, share of untrained |\n|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after every seed that was asked for has run and its row is printed."""
    parser = LineParser(prog="python -m benchmarks seeds", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=whole_number)
    seeds = parser.parse_args(arguments).seeds
    print(HEADER, flush=True)
    for seed in seeds:
        print(_row(seed), flush=True)
    return 0


def _row(seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        record = _run(Path(folder), seed)
    before, after = record["baseline"], record["attacker"]
    cells = [
        str(seed),
        _spelled(before["attack_success_rate"]),
        _spelled(after["attack_success_rate"]),
        f"{after['unique_probes']:.2f}",
        f"{after['distinct_2'] / before['distinct_2']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _run(folder: Path, seed: int) -> dict[str, Any]:
    """The evaluation of a run with this seed in a copy of the project."""
    copy_project(folder, f"seed={seed}", f"data_seed={seed}")
    for stage in STAGES:
        run_python(folder, "-m", "tasks", stage)
    report: dict[str, Any] = json.loads((folder / "reports/evaluation.json").read_text())
    return report


def _spelled(interval: dict[str, float]) -> str:
    return f"{interval['value']:.1%} [{interval['low']:.1%}, {interval['high']:.1%}]"
