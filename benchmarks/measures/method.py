"""What each algorithm learns in each world, over seeds: ``python -m benchmarks method``.

A cell is a run of the pipeline's stages with the default settings, in a copy of the project, on
one thread: from prompts to the evaluation of an algorithm in a world under a seed. Its figures are
kept in the cache, so a cell is run once; another call goes on with those that are missing.
Strategies are of as many hits as are given, so only equal ones compare.
``--cells 2`` runs at most two now. ``embedded`` is the default's own world; for the others see
``benchmarks.worlds``. Remove the cache when the code has changed.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors.arguments import LineParser, whole_number
from astra_core.files import write_json
from benchmarks.copies import STAGES, copy_project, run_python
from benchmarks.worlds import MODEL, PROMPTS, WORLDS, make_world
from tasks.reporting.tables import markdown

ALL_WORLDS = ("embedded", *WORLDS)
CACHE = Path(".astra/method")
HEADER = (
    *("world", "algorithm", "seed", "success %, untrained", "trained", "gain"),
    *("clean success %, untrained", "trained", "unique", "strategies, untrained", "trained"),
    *("rude probes %", "KL, nats", "perplexity ratio", "nats moved, most", "s"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run.

    Attributes:
        world: One of ``ALL_WORLDS``.
        algorithm: As in params.yaml.
        seed: Of everything but the world.
    """

    world: str
    algorithm: str
    seed: int

    def file(self, cache: Path) -> Path:
        """Where its figures are kept."""
        return cache / f"{self.world}-{self.algorithm}-{self.seed}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing and prints the table of all that is there; the exit status."""
    parser = LineParser(prog="python -m benchmarks method", description=__doc__)
    parser.add_argument("--worlds", nargs="+", choices=ALL_WORLDS, default=ALL_WORLDS)
    parser.add_argument("--algorithms", nargs="+", default=["dpo", "grpo", "ppo"])
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[1, 2, 3])
    parser.add_argument("--cells", type=whole_number, help="run at most so many now")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="in params.yaml")
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args(arguments)
    cells = [
        Cell(world, algorithm, seed)
        for seed in asked.seeds
        for world in asked.worlds
        for algorithm in asked.algorithms
    ]
    missing = [cell for cell in cells if not cell.file(asked.cache).is_file()]
    for cell in missing[: asked.cells]:
        write_json(run_cell(cell, asked.cache, asked.set), cell.file(asked.cache))
    print(table(cells, asked.cache))
    return 0


def table(cells: Sequence[Cell], cache: Path) -> str:
    """The finished cells as Markdown, and how many are missing."""
    done = [cell for cell in cells if cell.file(cache).is_file()]
    text = markdown(HEADER, [_row(cell, json.loads(cell.file(cache).read_text())) for cell in done])
    return f"{text}\n\n{len(done)} of {len(cells)} cells"


def run_cell(cell: Cell, cache: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The figures of a run; its world is made first where it is not there yet."""
    start = time.perf_counter()
    own = [*_settings(cell, cache), *changes]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_project(folder, *own)
        for stage in STAGES:
            run_python(folder, "-m", "tasks", stage)
        reports = folder / "reports"
        evaluation = json.loads((reports / "evaluation.json").read_text())
        training = json.loads((reports / "training.json").read_text())
    return {
        "evaluation": evaluation,
        "moves": training["moves"],
        "stopped_because": training["stopped_because"],
        "settings": own,
        "seconds": time.perf_counter() - start,
    }


def _settings(cell: Cell, cache: Path) -> Iterator[str]:
    """What params.yaml says in this cell beside its defaults."""
    yield f"seed={cell.seed}"
    yield f"data_seed={cell.seed}"
    yield "machine.num_threads=1"
    yield f"training.algorithm.name={cell.algorithm}"
    if cell.world not in WORLDS:
        return
    folder = cache.resolve() / "worlds" / cell.world
    if not folder.is_dir():
        make_world(cell.world, folder)
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
        *(cell.world, cell.algorithm, str(cell.seed)),
        _spelled(before["attack_success_rate"]),
        _spelled(after["attack_success_rate"]),
        _spelled(evaluation["lift"]),
        f"{100.0 * before['clean_attack_success_rate']['value']:.1f}",
        _spelled(after["clean_attack_success_rate"]),
        f"{after['unique_probes']:.2f}",
        *(
            f"{side['strategies']:.1f} in {side['num_hits_compared']:.0f}"
            for side in (before, after)
        ),
        f"{100.0 * after['probe_toxicity_rate']:.1f}",
        f"{after['kl_nats']:.1f}",
        f"{after['probe_perplexity'] / before['probe_perplexity']:.2f}",
        f"{moved:.1f}",
        f"{found['seconds']:.0f}",
    )


def _spelled(interval: dict[str, float]) -> str:
    value, low, high = (100.0 * interval[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"
