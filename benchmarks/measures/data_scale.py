"""The time and memory that a thousand to ten million prompts take.

``python -m benchmarks data_scale`` prepares, splits and validates synthetic prompts with the stages
of the pipeline, each stage and size in its own process, and prints one row for each. Time is
linear where the slope, log of processor time over log of rows against the size before, is at most
one; a neighbour changes that less than it does wall time. The exit status is 1 when a limit is
exceeded. ``python -m benchmarks data_scale 1000 10000`` takes a minute;
``python -m benchmarks data_scale 1000000 10000000`` half an hour on a quiet machine.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from astra_core.engine.memory import resident_peak_mib
from astra_parts.arguments import LineParser, at_least_one
from tasks.machine.garbage import collect_rarely
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for
from tasks.stages.prompts import PromptsParams, PromptsSetup, prepare_prompts
from tasks.stages.validation import ValidationParams, ValidationSetup, validate_prompts

SIZES = (1_000, 10_000, 100_000, 1_000_000)
STAGES = ("prompts", "validation")
LIMIT_MIB = 2048.0
# Above one, to allow for cache misses and for the noise of a shared machine.
LIMIT_SLOPE = 1.2
# Below this, a stage's fixed cost hides how its cost grows.
MIN_SLOPE_ROWS = 10_000
HEADER = (
    "| stage | rows | kept | seconds | processor s | per million | slope | peak MiB | limits |\n"
    "|---|---|---|---|---|---|---|---|---|"
)

_SYLLABLES = "ba ce di fo gu la me ni po ru sa te vi wo zu".split()  # noqa: SIM905 - read as a list
_WORDS = [first + second for first in _SYLLABLES for second in _SYLLABLES]
# One in so many repeats the one before except for a word, is too long, or has personal data.
_NEAR, _LONG, _PERSONAL = 20, 1000, 100


@dataclass(frozen=True, slots=True)
class Measurement:
    """One stage at one size.

    Attributes:
        stage: Its name.
        num_rows: Rows of the file with the prompts.
        num_kept: Rows that the stage let pass.
        seconds: Wall-clock time of the stage's function, without loading the program.
        processor_s: Processor time of the same, on all threads.
        peak_mib: Peak resident memory of the stage's process.
        slope: Slope against the next smaller size; None if either is too small.
    """

    stage: str
    num_rows: int
    num_kept: int
    seconds: float
    processor_s: float
    peak_mib: float
    slope: float | None = None

    @property
    def is_kept(self) -> bool:
        """True when memory and slope are within their limits."""
        return self.peak_mib < LIMIT_MIB and (self.slope is None or self.slope < LIMIT_SLOPE)

    def row(self) -> str:
        """A row of the table."""
        cells = (
            self.stage,
            f"{self.num_rows:,}",
            f"{self.num_kept:,}",
            f"{self.seconds:.2f}",
            f"{self.processor_s:.2f}",
            f"{self.processor_s / self.num_rows * 1e6:.0f}",
            "" if self.slope is None else f"{self.slope:.2f}",
            f"{self.peak_mib:.0f}",
            "kept" if self.is_kept else "EXCEEDED",
        )
        return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the table is printed."""
    parser = LineParser(prog="python -m benchmarks data_scale", description=__doc__)
    parser.add_argument(
        "sizes", nargs="*", type=at_least_one, default=SIZES, help="numbers of prompts"
    )
    sizes = parser.parse_args(arguments).sizes
    print(HEADER)
    is_kept = True
    for measurement in measurements(sizes):
        print(measurement.row(), flush=True)
        is_kept &= measurement.is_kept
    limits = f"below {LIMIT_MIB:g} MiB, and from {MIN_SLOPE_ROWS:,} rows on a slope below"
    print(f"\nlimits: {limits} {LIMIT_SLOPE:g}")
    return int(not is_kept)


def measurements(sizes: Sequence[int]) -> Iterator[Measurement]:
    """One per size and stage, smaller sizes first."""
    before: dict[str, Measurement] = {}
    for size in sorted(sizes):
        with TemporaryDirectory() as folder:
            write_prompts(size, Path(folder) / "prompts.jsonl")
            for stage in STAGES:
                # One process per stage, so that peaks are its own; spawn shares no memory page.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                    found = process.submit(measured, stage, size, folder).result()
                smaller = before.get(stage)
                before[stage] = Measurement(*found, slope=_slope(smaller, size, found[4]))
                yield before[stage]


def measured(stage: str, size: int, folder: str) -> tuple[str, int, int, float, float, float]:
    """Runs one stage in this process, in ``folder``, on the prompts there.

    Returns:
        The first six attributes of a ``Measurement``.
    """
    os.chdir(folder)
    collect_rarely()  # as the stage's own process does
    source = PromptsConfiguration(source="file", path=Path("prompts.jsonl"), licence="MIT")
    if stage == "validation":
        # Loaded before the clock starts, as this is not a cost of the rows.
        for library in ("great_expectations", "profanity_check"):
            import_module(library)
    start, used = time.perf_counter(), time.process_time()
    if stage == "prompts":
        splits = prepare_prompts(PromptsSetup.of(PromptsParams(0, source))).splits
    else:
        splits = dict(
            validate_prompts(ValidationSetup.of(sections_for(ValidationParams, Params()))).splits
        )
    seconds, processor_s = time.perf_counter() - start, time.process_time() - used
    return stage, size, sum(splits.values()), seconds, processor_s, resident_peak_mib()


def write_prompts(size: int, path: Path) -> None:
    """Writes ``size`` prompts of 4 to 24 words, the same for every equal ``size``."""
    generator = np.random.Generator(np.random.Philox(key=0))
    text = ""
    with path.open("w", encoding="utf-8") as file:
        for number in range(size):
            words = generator.integers(len(_WORDS), size=generator.integers(3, 24))
            spoken = " ".join(_WORDS[word] for word in words)
            text = f"{text} so" if number % _NEAR == 1 else f"{spoken} {_WORDS[number % 225]}"
            if number % _LONG == 2:
                text = f"{text} " * 200
            elif number % _PERSONAL == 3:
                text = f"{text}, write to jane@mail.example.org"
            file.write(json.dumps({"text": text}) + "\n")


def _slope(smaller: Measurement | None, size: int, processor_s: float) -> float | None:
    if smaller is None or smaller.num_rows < MIN_SLOPE_ROWS or size == smaller.num_rows:
        return None
    return math.log(processor_s / smaller.processor_s) / math.log(size / smaller.num_rows)
