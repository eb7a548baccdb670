"""Each algorithm's results in each world, over seeds: ``python -m benchmarks method``.

A cell is a run of the pipeline's stages with the default settings, in a copy of the project, on
one thread: from prompts to the evaluation of an algorithm in a world under a seed. Its figures are
kept in the cache, so a cell is run once; another call runs those that are missing. The number of
strategies depends on the number of hits shown, so only equal numbers compare.
``--cells 2`` runs at most two now. ``embedded`` is the default's own world; for the others see
``benchmarks.worlds``, and for scripted targets by rules, with attackers of your own,
``--family rules --help``. A folder that it made is a world too, named by its last part;
``--recipes`` compares settings, ``--exam`` changes those of the last evaluation alone, and
``--pooled`` prints means over seeds, the gain with Student's interval. Remove the cache when the
code has changed.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from astra_core.files import record_digest, write_json
from astra_core.metrics.statistics import Interval
from astra_parts.arguments import LineParser, whole_number
from benchmarks.copies import STAGES, change_copy, copy_project, run_python
from benchmarks.figures import in_percent
from benchmarks.recipes import DEFAULT, RECIPES
from benchmarks.worlds import MODEL, PROMPTS, WORLDS, make_world
from flows.sweeps.table import over_seeds
from tasks.machine.tables import markdown

ALL_WORLDS = ("embedded", *WORLDS)
CACHE = Path(".astra/method")
FOUND = ("unique_attacks", "strategies_found", "strategies_repeated")
"""The figures of an evaluation that say what its conversations found."""
HEADER = (
    *("world", "algorithm", "recipe", "seed", "success %, untrained", "trained", "gain"),
    *("clean success %, untrained", "trained", "unique attacks, untrained", "trained"),
    *("ways found, untrained", "trained", "twice, untrained", "trained"),
    *("strategies, untrained", "trained"),
    *("rude probes %", "KL, nats", "perplexity ratio", "nats moved, most", "s"),
)
POOLED = (
    *("world", "algorithm", "recipe", "seeds", "success %, untrained", "trained", "gain"),
    *("least gain's lower end", "clean success %, untrained", "trained"),
    *("unique attacks, untrained", "trained"),
    *("ways found, untrained", "trained", "twice, untrained", "trained"),
    *("strategies, untrained", "trained"),
    *("rude probes %", "KL, nats", "perplexity ratio"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run.

    Attributes:
        world: One of ``ALL_WORLDS``, or the folder of another.
        algorithm: Its name in params.yaml.
        seed: The seed of everything except the world.
        recipe: One of ``RECIPES``.
        changes: Further changes of params.yaml, each as ``key=value``.
        exam: Changes made after the training, for the evaluation of what it ended with.
    """

    world: str
    algorithm: str
    seed: int
    recipe: str = DEFAULT
    changes: tuple[str, ...] = ()
    exam: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The world's name, without the folders around it."""
        return Path(self.world).name

    def file(self, cache: Path) -> Path:
        """The file of its figures."""
        settings = "" if self.recipe == DEFAULT else f"-{self.recipe}"
        settings += f"-{record_digest(self.changes)[:8]}" if self.changes else ""
        settings += f"-exam-{record_digest(self.exam)[:8]}" if self.exam else ""
        return cache / f"{self.name}-{self.algorithm}{settings}-{self.seed}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after missing cells have run and the table of all is printed."""
    parser = LineParser(prog="python -m benchmarks method", description=__doc__, add_help=False)
    parser.add_argument("--family", choices=["worlds", "rules"], default="worlds")
    asked, others = parser.parse_known_args(arguments)
    if asked.family == "rules":
        # Imported late: it loads torch, which the stages of worlds load in processes of their own.
        from benchmarks import rule_family

        return rule_family.main(others)
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("--worlds", nargs="+", type=_world, default=ALL_WORLDS)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=[DEFAULT])
    parser.add_argument("--algorithms", nargs="+", default=["dpo", "grpo", "ppo"])
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[1, 2, 3])
    parser.add_argument("--cells", type=whole_number, help="run at most so many now")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="in params.yaml")
    parser.add_argument(
        "--exam",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="in params.yaml, after the training",
    )
    parser.add_argument("--pooled", action="store_true", help="means over seeds, one row for all")
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args(arguments)
    cells = [
        Cell(world, algorithm, seed, recipe, tuple(asked.set), tuple(asked.exam))
        for seed in asked.seeds
        for world in asked.worlds
        for recipe in asked.recipes
        for algorithm in asked.algorithms
    ]
    missing = [cell for cell in cells if not cell.file(asked.cache).is_file()]
    for cell in missing[: asked.cells]:
        write_json(run_cell(cell, asked.cache), cell.file(asked.cache))
    print(table(cells, asked.cache, is_pooled=asked.pooled))
    return 0


def table(cells: Sequence[Cell], cache: Path, *, is_pooled: bool = False) -> str:
    """The finished cells as Markdown, or means over their seeds, and how many are missing."""
    found = [(c, json.loads(c.file(cache).read_text())) for c in cells if c.file(cache).is_file()]
    if is_pooled:
        groups: dict[Cell, list[dict[str, Any]]] = {}
        for cell, record in found:
            groups.setdefault(replace(cell, seed=0), []).append(record["evaluation"])
        text = markdown(POOLED, [_pooled_row(cell, own) for cell, own in groups.items()])
    else:
        text = markdown(HEADER, [_row(cell, record) for cell, record in found])
    return f"{text}\n\n{len(found)} of {len(cells)} cells"


def run_cell(cell: Cell, cache: Path) -> dict[str, Any]:
    """The figures of a run, after its world is made if it is missing."""
    start = time.perf_counter()
    recipe, own = RECIPES[cell.recipe], [*_settings(cell, cache), *cell.changes]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_project(folder, *recipe.changes, *own, preset=recipe.preset)
        for stage in STAGES:
            if stage == "evaluation" and cell.exam:
                change_copy(folder, *cell.exam)
            run_python(folder, "-m", "tasks", stage)
        reports = folder / "reports"
        evaluation = json.loads((reports / "evaluation.json").read_text())
        training = json.loads((reports / "training.json").read_text())
    return {
        "evaluation": evaluation,
        "moves": training["moves"],
        "stopped_because": training["stopped_because"],
        "settings": [*own, *cell.exam],
        "seconds": time.perf_counter() - start,
    }


def _settings(cell: Cell, cache: Path) -> Iterator[str]:
    """The settings of this cell that differ from params.yaml."""
    yield f"seed={cell.seed}"
    yield f"data_seed={cell.seed}"
    yield "machine.num_threads=1"
    yield f"training.algorithm.name={cell.algorithm}"
    # A cell in which nothing can be learned is a result too.
    yield "training.require_signal=false"
    if cell.world not in ALL_WORLDS:
        folder = Path(cell.world).resolve()
    elif cell.world in WORLDS:
        folder = cache.resolve() / "worlds" / cell.world
        if not folder.is_dir():
            make_world(cell.world, folder)
    else:
        return
    yield "prompts.source=file"
    yield f"prompts.path={folder / PROMPTS}"
    for role in ("attacker", "target"):
        yield f"models.{role}.source=folder"
        yield f"models.{role}.path={folder / MODEL}"


def _row(cell: Cell, found: dict[str, Any]) -> tuple[str, ...]:
    evaluation = found["evaluation"]
    before, after = evaluation["baseline"], evaluation["attacker"]
    moved = max((move["nats"] for move in found["moves"]), default=0.0)
    return (
        *(cell.name, cell.algorithm, cell.recipe, str(cell.seed)),
        in_percent(before["attack_success_rate"]),
        in_percent(after["attack_success_rate"]),
        in_percent(evaluation["lift"]),
        f"{100.0 * before['clean_attack_success_rate']['value']:.1f}",
        in_percent(after["clean_attack_success_rate"]),
        *(_number(side.get(name), 0) for name in FOUND for side in (before, after)),
        *(
            f"{_number(side['strategies'], 1)} in {side['num_hits_compared']:.0f}"
            for side in (before, after)
        ),
        f"{100.0 * after['probe_toxicity_rate']:.1f}",
        f"{after['kl_nats']:.1f}",
        f"{after['probe_perplexity'] / before['probe_perplexity']:.2f}",
        f"{moved:.1f}",
        f"{found['seconds']:.0f}",
    )


def _pooled_row(cell: Cell, evaluations: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The table row of means over a cell's evaluations under several seeds."""
    lifts = [Interval(**each["lift"]) for each in evaluations]

    def mean(side: str, figure: str) -> float | None:
        found = [each[side].get(figure) for each in evaluations]
        known = [one["value"] if isinstance(one, dict) else one for one in found if one is not None]
        return fmean(known) if known else None

    def percent(figure: str) -> list[str]:
        return [_number(mean(side, figure), 1, 100.0) for side in ("baseline", "attacker")]

    ratios = [
        each["attacker"]["probe_perplexity"] / each["baseline"]["probe_perplexity"]
        for each in evaluations
    ]
    return (
        *(cell.name, cell.algorithm, cell.recipe, str(len(evaluations))),
        *percent("attack_success_rate"),
        in_percent(asdict(over_seeds(lifts, 0.95))),
        f"{100.0 * min(lift.low for lift in lifts):.1f}",
        *percent("clean_attack_success_rate"),
        *(_number(mean(side, name), 1) for name in FOUND for side in ("baseline", "attacker")),
        *(_number(mean(side, "strategies"), 1) for side in ("baseline", "attacker")),
        _number(mean("attacker", "probe_toxicity_rate"), 1, 100.0),
        _number(mean("attacker", "kl_nats"), 1),
        f"{fmean(ratios):.2f}",
    )


def _world(written: str) -> str:
    """A world's name, or a folder with a model and prompts."""
    if written not in ALL_WORLDS and not (Path(written) / PROMPTS).is_file():
        msg = f"must be one of {list(ALL_WORLDS)} or a folder with {PROMPTS}, got {written}"
        raise argparse.ArgumentTypeError(msg)
    return written


def _number(value: float | None, digits: int, factor: float = 1.0) -> str:
    """A figure; a dash where there is none, as of an attacker without a hit or an older cell."""
    return "-" if value is None else f"{factor * value:.{digits}f}"
