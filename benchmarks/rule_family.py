"""Gains against targets by rules: ``python -m benchmarks method --family rules``.

For each attacker, rules are drawn from the grammar of ``benchmarks.rules`` by the number of the
release, so no setting was chosen on them; ``--release 0`` draws the development rules, on which
settings may be chosen. A cell is a training on one thread with params.yaml as it is, except for the
target and ``reward.options.nll_weight``, which is 0 since such a target has no log-probabilities.
The ceiling is the success of probes that were written to meet the rule, and a share is the gain
divided by what there is to gain: the ceiling minus the untrained attacker's success. Finished cells
stay in the cache. ``--attackers`` names Hugging Face folders, or ``shipped`` for the model of the
default settings; ``--cells 2`` runs at most two cells now. ``--small`` takes a third of the prompts
and two thirds of a probe's tokens: a cell is then half a minute to a minute of one core.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from astra_core.files import write_json
from astra_parts.arguments import LineParser, at_least_one, whole_number
from benchmarks.rule_cells import SHIPPED, RuleCell, run_rule_cell
from tasks.machine.tables import markdown

CACHE = Path(".astra/rules")
RELEASE = 4
"""Another number for each release."""
SMALL = (
    "rollouts.num_prompts=32",
    "training.num_episodes_per_experience=12",
    "system.probe.max_new_tokens=16",
    "evaluation.num_prompts=100",
    "evaluation.num_rollouts=1",
    "evaluation.num_training_prompts=32",
)
"""Changes of params.yaml under ``--small``."""
EACH = ("attacker", "kind", "rude after a probe that", "ceiling %", "success %, untrained")
ALL = (
    *("attacker", "algorithm", "cells", "success %, untrained", "trained", "share of ceiling %"),
    *("gains above 0", "of rules, over seeds", "probes with an invented word %, untrained"),
    *("trained", "unique probes", "KL, nats", "nats moved, most", "CPU s of a cell"),
)
Found = tuple[RuleCell, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after missing cells have run and the tables of all are printed."""
    parser = LineParser(prog="python -m benchmarks method --family rules", description=__doc__)
    parser.add_argument("--attackers", nargs="+", type=_attacker, default=[SHIPPED])
    parser.add_argument("--release", type=whole_number, default=RELEASE)
    parser.add_argument("--rules", type=at_least_one, default=10, help="of the release")
    parser.add_argument("--algorithms", nargs="+", default=["dpo", "grpo", "ppo"])
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[1, 2, 3])
    parser.add_argument("--cells", type=whole_number, help="run at most so many now")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="in params.yaml")
    parser.add_argument("--small", action="store_true", help="fewer prompts and shorter probes")
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args(arguments)
    changes = (*(SMALL if asked.small else ()), *asked.set)
    cells = [
        RuleCell(attacker, asked.release, number, algorithm, seed, changes)
        for seed in asked.seeds
        for attacker in asked.attackers
        for number in range(asked.rules)
        for algorithm in asked.algorithms
    ]
    missing = [cell for cell in cells if not cell.file(asked.cache).is_file()]
    for cell in missing[: asked.cells]:
        write_json(run_rule_cell(cell, count=asked.rules), cell.file(asked.cache))
    kept = [cell for cell in cells if cell.file(asked.cache).is_file()]
    found = [(cell, json.loads(cell.file(asked.cache).read_text())) for cell in kept]
    print(tables(found))
    print(f"\n{len(found)} of {len(cells)} cells")
    return 0


def tables(found: Sequence[Found]) -> str:
    """Finished cells as Markdown: a row for each rule, then one for each algorithm."""
    algorithms = list(dict.fromkeys(cell.algorithm for cell, _ in found))
    rules = _grouped(found, lambda cell: (cell.folder, cell.number))
    totals = _grouped(found, lambda cell: (cell.folder, cell.algorithm))
    header = (*EACH, *(f"share %, {name}" for name in algorithms))
    each = markdown(header, [[*_rule_row(own, algorithms)] for own in rules])
    return f"{each}\n\n{markdown(ALL, [[*_total_row(own)] for own in totals])}"


def share(record: dict[str, Any]) -> float:
    """The gain of a cell, divided by what there was to gain."""
    gain: float = record["gain"]["value"]
    left: float = record["ceiling"] - record["untrained"]["success"]
    return gain / left


def _grouped(found: Sequence[Found], key: Callable[[RuleCell], Any]) -> list[list[Found]]:
    groups: dict[Any, list[Found]] = {}
    for own in found:
        groups.setdefault(key(own[0]), []).append(own)
    return list(groups.values())


def _rule_row(own: Sequence[Found], algorithms: Sequence[str]) -> Iterator[str]:
    (first, record), records = own[0], [each for _, each in own]
    yield from (first.folder.name, record["rule"]["kind"], record["rule"]["text"])
    yield _percent([each["ceiling"] for each in records])
    yield _percent([each["untrained"]["success"] for each in records])
    for name in algorithms:
        yield _percent([share(each) for cell, each in own if cell.algorithm == name])


def _total_row(own: Sequence[Found]) -> Iterator[str]:
    (first, _), records = own[0], [each for _, each in own]

    def mean(side: str, figure: str) -> list[float]:
        return [each[side][figure] for each in records]

    yield from (first.folder.name, first.algorithm, str(len(records)))
    yield from (_percent(mean(side, "success")) for side in ("untrained", "trained"))
    yield _percent([share(each) for each in records])
    yield f"{sum(each['gain']['low'] > 0.0 for each in records)} of {len(records)}"
    rules = _grouped(own, lambda cell: cell.number)
    # The mean of the lower ends is at most that of the mean gain, whose seeds share their prompts.
    lows = [fmean(each["gain"]["low"] for _, each in rule) for rule in rules]
    yield f"{sum(low > 0.0 for low in lows)} of {len(lows)}"
    yield from (_percent(mean(side, "invented")) for side in ("untrained", "trained"))
    yield f"{fmean(mean('trained', 'unique')):.2f}"
    yield f"{fmean(mean('trained', 'kl_nats')):.1f}"
    yield f"{max(move['nats'] for each in records for move in each['moves']):.1f}"
    yield f"{fmean(each['cpu_seconds'] for each in records):.0f}"


def _percent(values: Sequence[float]) -> str:
    """The mean in percent; a dash for no values."""
    return f"{100.0 * fmean(values):.1f}" if values else "-"


def _attacker(written: str) -> str:
    """``SHIPPED``, or a folder with a model."""
    if written != SHIPPED and not (Path(written) / "config.json").is_file():
        msg = f"must be {SHIPPED} or a Hugging Face folder, got {written}"
        raise argparse.ArgumentTypeError(msg)
    return written
