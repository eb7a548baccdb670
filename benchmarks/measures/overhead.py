"""Processor time around the stages: Python's start, DVC, MLflow, Prefect and its server.

``python -m benchmarks overhead`` starts each part in a process of its own and prints a table of
processor seconds, user and system, those of its children included, and of wall-clock seconds; the
smallest of ``--repetitions``. With ``--project FOLDER``, in which ``astra run`` has ended, it also
measures ``astra status`` and an ``astra run`` that finds nothing to do.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from astra_parts.arguments import LineParser, at_least_one
from tasks.machine.tables import markdown

HEADER = ("part", "processor seconds", "wall-clock seconds")
_SERVER = """\
import os
from flows.servers.environment import set_flow_environment
set_flow_environment()
from flows.servers.services import wait_until_ready
from flows.servers.temporary_server import start_temporary_server, stop_temporary_server
server = start_temporary_server()
wait_until_ready(server, "/api/health")
stop_temporary_server(server)
"""
PARTS: Mapping[str, tuple[str, ...]] = {
    "Python": ("-c", "pass"),
    "astra --help": ("-m", "flows.cli", "--help"),
    "import DVC": ("-c", "import dvc.repo"),
    "import MLflow": ("-c", "import mlflow"),
    "import Great Expectations": ("-c", "import great_expectations"),
    "import torch and transformers": ("-c", "import torch, transformers"),
    "import Prefect": ("-c", "import prefect, prefect.flows"),
    "Prefect's server, started and stopped": ("-c", _SERVER),
}
"""What each part is measured by: arguments of Python."""
OF_A_PROJECT: Mapping[str, tuple[str, ...]] = {
    "astra status": ("-m", "flows.cli", "status"),
    "astra run, nothing to do": ("-m", "flows.cli", "run"),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of one process in seconds.

    Attributes:
        processor: User and system time, children included.
        wall: Wall-clock time.
    """

    processor: float
    wall: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the parts are measured and their table is printed."""
    parser = LineParser(prog="python -m benchmarks overhead", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*PARTS], help="default: all of them")
    parser.add_argument("--project", type=Path, help="in which 'astra run' has ended")
    parser.add_argument("--repetitions", type=at_least_one, default=3)
    asked = parser.parse_args(arguments)
    own = Path(__file__).parents[2]
    parts = {name: (PARTS[name], own) for name in asked.only or PARTS}
    if asked.project is not None:
        parts |= {name: (words, asked.project) for name, words in OF_A_PROJECT.items()}
    found = {
        name: min(
            (spent(words, folder) for _ in range(asked.repetitions)), key=lambda one: one.processor
        )
        for name, (words, folder) in parts.items()
    }
    rows = [(name, f"{one.processor:.2f}", f"{one.wall:.2f}") for name, one in found.items()]
    sys.stdout.write(f"{markdown(HEADER, rows)}\n")
    return 0


def spent(words: Sequence[str], folder: Path) -> Spent:
    """The time of Python with these arguments in the folder.

    Raises:
        CalledProcessError: It failed.
    """
    return spent_by(partial(_run, words, folder))


def spent_by(start_and_wait: Callable[[], object]) -> Spent:
    """The time of all processes that a call starts and waits for; not that of this process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    start_and_wait()
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Spent(processor=processor, wall=wall)


def _run(words: Sequence[str], folder: Path) -> None:
    subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
