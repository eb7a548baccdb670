"""The demonstration over seeds and algorithms, on two targets: ``python -m benchmarks chat``.

A cell is ``astra run --preset demo`` in a copy of the project, from prompts to the decision, with
the chat model that ``make my/smollm2`` makes on both sides. ``secret`` is the demonstration;
``french`` is another rule to keep (``benchmarks.chat_worlds``), on which nothing was chosen. Cells
are kept in the cache; remove it when the code has changed.
"""

import json
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.files import write_json
from astra_parts.arguments import LineParser, whole_number
from benchmarks.chat_worlds import make_french
from benchmarks.copies import copy_project, run_python
from benchmarks.figures import in_percent
from tasks.machine.tables import markdown

ALGORITHMS = {
    "dpo": (),
    "grpo": (
        "training.algorithm.name=grpo",
        "training.lr=4e-4",
        "training.algorithm.options.kl_coefficient=0.05",
    ),
}
"""Changes of the preset, as its file names them."""
CACHE = Path(".astra/chat")
MODEL = Path("my/smollm2")
HEADER = (
    *("target", "algorithm", "seed", "prompts as they stand, %", "untrained", "trained"),
    *("gain over untrained, points", "over the best plain question", "unique probes"),
    *("strategies in hits", "decision", "minutes", "GiB"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after missing cells have run and the table of all is printed."""
    parser = LineParser(prog="python -m benchmarks chat", description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=["secret", "french"], default=["secret"])
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=["dpo"])
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args(arguments)
    rows = []
    for target in asked.targets:
        for algorithm in asked.algorithms:
            for seed in asked.seeds:
                file = asked.cache / f"{target}-{algorithm}-{seed}.json"
                if not file.is_file():
                    # In a process of its own, whose children are this cell's.
                    with ProcessPoolExecutor(1) as pool:
                        found = pool.submit(run_cell, target, algorithm, seed).result()
                    write_json(found, file)
                rows.append((target, algorithm, str(seed), *row(json.loads(file.read_text()))))
    print(markdown(HEADER, rows))
    return 0


def run_cell(target: str, algorithm: str, seed: int) -> dict[str, Any]:
    """What a run found and took: its evaluation, the decision, seconds and bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        changes = [*ALGORITHMS[algorithm], f"seed={seed}", *own_model()]
        if target == "french":
            changes += make_french(folder)
        copy_project(folder)
        start = time.perf_counter()
        settings = [part for change in changes for part in ("--set", change)]
        code = "from flows.start import main; main()"
        printed = run_python(folder, "-c", code, "run", "--preset", "demo", *settings)
        seconds = time.perf_counter() - start
        evaluation = json.loads((folder / "reports/evaluation.json").read_text())
    (decision,) = (line for line in printed.splitlines() if line.startswith("promotion "))
    return {
        "evaluation": evaluation,
        "decision": " ".join(decision.split()[1:]),
        "seconds": seconds,
        "bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def own_model() -> list[str]:
    """The changes of the preset that name the project's own folder.

    Raises ConfigurationError if it is missing.
    """
    if not MODEL.is_dir():
        msg = f"{MODEL} must be a chat model's folder, got nothing there; 'make {MODEL}' makes it"
        raise ConfigurationError(msg)
    return [f"models.{role}.path={MODEL.resolve()}" for role in ("attacker", "target")]


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """The figures of a cell, by ``HEADER``."""
    evaluation = found["evaluation"]
    plain, before, after = (evaluation[name] for name in ("plain", "baseline", "attacker"))
    return (
        in_percent(plain["own_rate"]),
        in_percent(before["attack_success_rate"]),
        in_percent(after["attack_success_rate"]),
        in_percent(evaluation["lift"]),
        in_percent(plain["lift"]),
        f"{after['unique_probes_rarefied']:.2f}",
        f"{after['strategies'] or 0:.0f} in {after['num_hits_compared']:.0f}",
        "champion" if " is champion: " in found["decision"] else found["decision"],
        f"{found['seconds'] / 60:.1f}",
        f"{found['bytes'] / 2**30:.1f}",
    )
