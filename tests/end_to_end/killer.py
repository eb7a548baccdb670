"""Runs ``astra run`` while a killer strikes at it, and tells what such a run has left."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from project import environment
from ruamel.yaml import YAML

from astra_core.files import file_digest, read_json

RECEIPT = "reports/registration.json"
# Of the receipt: they name a place, or are drawn anew by MLflow.
BY_NATURE = ("run_id", "experiment_id", "tracking_uri")
# Torch's own, empty and one for each user, whoever runs; a quiet run leaves it too.
CACHE = "torchinductor_"
LOOK_S = 0.1
GONE_S = 60.0
# Of the time that a stage takes where nobody strikes; another run of it may be quicker than that.
LATEST = 0.6


class Killer:
    """Strikes once at each chosen victim, when the stage it is chosen for is under way.

    Args:
        folder: The project's.
        plan: Victims by stage, in order: ``stage``, ``dvc``, ``flow`` or ``server``.
        seconds: What each stage takes where nobody strikes.
        seed: Of the moments.
    """

    def __init__(
        self, folder: Path, plan: dict[str, list[str]], seconds: dict[str, float], *, seed: int
    ) -> None:
        self.strikes: list[str] = []
        self._folder = folder
        self._plan = {stage: list(victims) for stage, victims in plan.items()}
        self._seconds = seconds
        self._random = random.Random(seed)
        self._met: set[int] = set()

    def watch(self, flow: "subprocess.Popen[str]") -> None:
        """Returns when the flow has ended, by itself or not."""
        while flow.poll() is None:
            for process in processes_of(self._folder):
                stage = _stage_of(process)
                if process.pid not in self._met and self._plan.get(stage):
                    self._met.add(process.pid)
                    self._strike(flow, stage, process)
            time.sleep(LOOK_S)

    def _strike(self, flow: "subprocess.Popen[str]", stage: str, process: psutil.Process) -> None:
        kind = self._plan[stage][0]
        delay = self._random.uniform(0.0, LATEST * self._seconds[stage])
        with suppress(psutil.TimeoutExpired):
            process.wait(delay)
        victim = {
            "stage": lambda: process,
            "dvc": lambda: _named(self._folder, "tasks.pipeline.reproduction", stage),
            "flow": lambda: psutil.Process(flow.pid),
            "server": lambda: _server(self._folder),
        }[kind]()
        if victim is None or not victim.is_running():
            return
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
            self._plan[stage].pop(0)
            self.strikes.append(f"{kind} of {stage} after {delay:.2f} s")


def start(folder: Path) -> "subprocess.Popen[str]":
    """``astra run`` in the project, in a group of its own."""
    log = (folder / "runs.log").open("a", encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "run"],
        cwd=folder,
        env={**environment(folder), "TMPDIR": str(folder / "tmp")},
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def seconds_of(words: str) -> dict[str, float]:
    """What each stage took, by what the flow said."""
    lines = re.findall(r"^(\w+) .*\((\d+\.\d) s\)$", words, flags=re.MULTILINE)
    return {stage: float(seconds) for stage, seconds in lines}


def outputs(folder: Path) -> dict[str, str]:
    """The digest of every file that a stage of dvc.lock owes, and what DVC says it is made of.

    The receipt is the one that differs by nature; of it the rest is compared.
    """
    lock = YAML(typ="safe").load((folder / "dvc.lock").read_text(encoding="utf-8"))
    told = read_json(folder / RECEIPT) if (folder / RECEIPT).exists() else {}
    found = {RECEIPT: str({key: value for key, value in told.items() if key not in BY_NATURE})}
    for stage, entry in lock["stages"].items():
        for out in entry.get("outs", ()):
            path = folder / out["path"]
            files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
            found |= {str(file.relative_to(folder)): file_digest(file) for file in files}
            found[f"dvc.lock: {out['path']}"] = str(out)
        found[f"dvc.lock: {stage}"] = str([entry[key] for key in ("cmd", "deps", "params")])
    return found


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that works in the project's folder and lives."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def leftovers(folder: Path) -> list[str]:
    """What a run that is over must not have left: processes, drafts and temporary folders."""
    end = time.monotonic() + GONE_S
    while (alive := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    drafts = [p for mark in ("partial", "stale") for p in folder.rglob(f".*.{mark}")]
    scratch = [*(folder / ".astra/scratch").glob("*"), *(folder / "tmp").glob("*")]
    scratch = [path for path in scratch if not path.name.startswith(CACHE)]
    return [
        *(" ".join(_command(process)) for process in alive),
        *(str(path.relative_to(folder)) for path in [*drafts, *scratch]),
    ]


def end(folder: Path) -> None:
    """Kills what still works in the folder, so that a failed test leaves nothing either."""
    for process in processes_of(folder):
        if process.pid != os.getpid():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _stage_of(process: psutil.Process) -> str:
    command = _command(process)
    return command[-1] if command[-3:-1] == ["-m", "tasks"] else ""


def _server(folder: Path) -> psutil.Process | None:
    """Prefect's server: the temporary one of a run, or that of ``astra ui``."""
    return _named(folder, "flows.servers.prefect_server")


def _named(folder: Path, *words: str) -> psutil.Process | None:
    for process in processes_of(folder):
        if set(words) <= set(_command(process)):
            return process
    return None


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []
