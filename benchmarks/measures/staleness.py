"""What collecting ahead costs in learning and saves in seconds: ``python -m benchmarks staleness``.

The default run is trained with every training seed that is asked for, once in step and once for
each number of versions that collecting may be ahead, in copies of the project whose prompts and
models are the same. A worker process rolls out on one thread, and the stage learns on another, so
two free cores are needed to save anything. Success is that of the kept attacker on the test
prompts. The exit status is 1 if a mean over the seeds is below the 95 % interval of the mean of
those in step.
"""

import json
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from astra_core.metrics.statistics import Interval
from astra_parts.arguments import LineParser, at_least_one, whole_number
from benchmarks.copies import STAGES, change_copy, copy_project, run_python
from benchmarks.processor import machine
from flows.sweeps.table import over_seeds
from tasks.machine.tables import markdown

BEFORE, OF_A_SEED = STAGES[:3], "rollouts"
WORKER = (
    *("executor.name=processes", "executor.options.num_workers=1"),
    *("machine.num_threads=1", "machine.prompts_per_shard=64", "tracking.sinks=[]"),
)
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to.

    Attributes:
        before: Success of the untrained attacker on the test prompts, with its interval.
        success: Of the attacker that was kept.
        seconds: Of the stage ``training``.
        processor_s: Of its processes.
    """

    before: Interval
    success: Interval
    seconds: float
    processor_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and prints a row for each seed, the means and the differences; the exit status."""
    parser = LineParser(prog="python -m benchmarks staleness", description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[0, 1, 2])
    parser.add_argument("--versions", nargs="+", type=at_least_one, default=[1])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="in params.yaml")
    asked = parser.parse_args(arguments)
    versions = [0, *asked.versions]
    found: dict[int, list[Trained]] = {number: [] for number in versions}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "base"
        base.mkdir()
        copy_project(base, *WORKER, *asked.set)
        for stage in BEFORE:
            run_python(base, "-m", "tasks", stage)
        for seed in asked.seeds:
            for number, own in trained(base, seed, versions=versions).items():
                found[number].append(own)
    print(f"{machine()}\n\n{seeds_table(asked.seeds, found)}")
    if len(asked.seeds) < 2:
        print("\nof one seed there is no interval over seeds")
        return 0
    text, is_kept = verdicts(found)
    print(f"\n{text}")
    return int(not is_kept)


def trained(base: Path, seed: int, *, versions: Sequence[int]) -> dict[int, Trained]:
    """A training for each number of versions, with one seed and the same first experience.

    Args:
        base: A copy of the project that has prompts and models.
        seed: Of the training.
        versions: That collecting may be ahead.
    """
    of_seed = base.parent / f"seed_{seed}"
    shutil.copytree(base, of_seed, symlinks=True)
    change_copy(of_seed, f"training_seed={seed}")
    run_python(of_seed, "-m", "tasks", OF_A_SEED)
    found = {}
    for number in versions:
        folder = base.parent / f"seed_{seed}_{number}"
        shutil.copytree(of_seed, folder, symlinks=True)
        change_copy(folder, f"training.staleness.max_versions={number}")
        seconds, processor_s = _spent(folder, "training")
        run_python(folder, "-m", "tasks", "evaluation")
        report = json.loads((folder / "reports/evaluation.json").read_text())
        rates = [report[side]["attack_success_rate"] for side in ("baseline", "attacker")]
        before, after = (Interval.read(rate) for rate in rates)
        found[number] = Trained(before, after, seconds, processor_s)
        shutil.rmtree(folder)
    shutil.rmtree(of_seed)
    return found


def _spent(folder: Path, stage: str) -> tuple[float, float]:
    """Seconds of a stage, and processor seconds of all its processes, which have ended."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python(folder, "-m", "tasks", stage)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, used


def seeds_table(seeds: Sequence[int], found: Mapping[int, Sequence[Trained]]) -> str:
    """A row for each seed: success, and seconds of the stage by the clock and the processor."""
    header = ["training seed", "untrained"]
    for number in found:
        header += [f"`max_versions: {number}`", "training s (processor s)"]
    rows = []
    for place, seed in enumerate(seeds):
        row = [str(seed), f"{found[0][place].before.value:.1%}"]
        for own in found.values():
            spent = own[place]
            row += [f"{spent.success.value:.1%}", f"{spent.seconds:.1f} ({spent.processor_s:.1f})"]
        rows.append(row)
    return markdown(header, rows)


def verdicts(found: Mapping[int, Sequence[Trained]]) -> tuple[str, bool]:
    """Means over the seeds and differences to those in step; False if one is below the interval.

    Args:
        found: For each number of versions what the seeds came to; 0 is among them.
    """
    in_step = over_seeds([own.success for own in found[0]], CONFIDENCE)
    rows, is_kept = [["0", in_step.spelled(".1%"), "", "", ""]], True
    for number, own in found.items():
        if not number:
            continue
        mean = over_seeds([each.success for each in own], CONFIDENCE)
        pairs = list(zip(own, found[0], strict=True))
        gains = [each.success.value - other.success.value for each, other in pairs]
        gain = over_seeds([Interval(each, each, each) for each in gains], CONFIDENCE)
        saved = [1.0 - each.seconds / other.seconds for each, other in pairs]
        is_within = mean.value >= in_step.low
        is_kept &= is_within
        row = [str(number), mean.spelled(".1%"), gain.spelled("+.1%")]
        rows.append([*row, f"{sum(saved) / len(saved):+.0%}", "yes" if is_within else "NO"])
    header = ["`max_versions`", "mean over seeds, 95 %", "paired difference"]
    return markdown([*header, "seconds saved", "not below the interval of 0"], rows), is_kept
