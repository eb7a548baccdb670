"""The training stage while a killer strikes: ``python killed_stage.py FOLDER STRIDE``.

One run is left alone. Each other is a child process that is killed by SIGKILL at another of the
moments at which the stage writes, moves or removes a file, and is then run again in a process that
orders sets otherwise. Prints, as JSON, how many moments there are, the signals that ended killed
runs, and for each moment after which an output, or what a sink has recorded, differs from that of
the run that was left alone, which do.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import torch
from small_world import PARAMS, write_world
from tqdm import tqdm

from astra_core.config import Choice, EarlyStopping
from astra_core.files import file_digest, write_text
from tasks.params.schema import TrackingConfiguration
from tasks.pipeline.stage import stage_of
from tasks.stages import rollouts, training
from tasks.tracking.store import connect

HERE = Path(__file__).resolve()
MOMENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open"}
UNSTEADY = {"time", "memory"}
STAGE = stage_of(training.train_attacker)
# The budget ends the third step amid its updates; the best is by a figure that each of them moves.
TRAINING = PARAMS.training.model_copy(
    update={
        "algorithm": Choice(name="rloo", options={}),
        "epochs_per_experience": 2,
        "metric": "eval/kl_nats",
        "early_stopping": EarlyStopping(max_optimizer_steps=20),
        "checkpoint": PARAMS.training.checkpoint.model_copy(update={"save_every": 2}),
    }
)


TRACKING = TrackingConfiguration.read({"sinks": ["mlflow", "csv"]}, where="tracking")


def run(folder, *, kill_at=None):
    """The stage in ``folder``, to its end or killed on the way; leaves what it counted there."""
    count = [0]
    own = [str(folder / name) for name in ("runs", "models", "reports", "tracking", "findings")]

    def live_through(moment, arguments):
        if moment not in MOMENTS or (moment == "open" and "r" in str(arguments[1])):
            return
        path = str(Path.cwd() / os.fsdecode(arguments[0])) if _is_path(arguments[0]) else ""
        if path.startswith(tuple(own)):
            count[0] += 1
            if count[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    os.chdir(folder)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    sys.addaudithook(live_through)
    STAGE.run(PARAMS.model_copy(update={"training": TRAINING, "tracking": TRACKING}))
    write_text(json.dumps(count[0]), folder / "count.json")


def _is_path(value):
    return isinstance(value, str | bytes | os.PathLike)


def child(folder, *, kill_at=None):
    """The signal that ended a stage in a process of its own, or 0."""
    process = os.fork()
    if process == 0:
        # All processes share the lock of before: one that is killed while it has it keeps it.
        tqdm.set_lock(threading.RLock())
        status = 1
        try:
            run(folder, kill_at=kill_at)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    return -os.waitstatus_to_exitcode(status)


def outputs(folder):
    """The digest of every file that the stage owes to DVC or the archive, and of none other."""
    found = {}
    for product in (*STAGE.products, "findings"):
        path = folder / product
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        found |= {str(file.relative_to(folder)): file_digest(file) for file in files}
    return found | {"tracking": recorded(folder)}


def recorded(folder):
    """The lines of the CSV sink, without what differs from run to run."""
    (file,) = (folder / "tracking" / "csv").glob("*/figures.csv")
    with file.open(newline="") as lines:
        return sorted(line for line in csv.reader(lines) if line[1].split("/")[0] not in UNSTEADY)


def main():
    torch.set_num_threads(1)
    root, stride = Path(sys.argv[1]), int(sys.argv[2])
    if "resume" in sys.argv:
        for folder in root.glob("killed_*"):
            child(folder)
        return
    origin = root / "origin"
    origin.mkdir()
    os.chdir(origin)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{origin}/mlflow.db"
    write_world(origin)
    stage_of(rollouts.collect_rollouts).run(PARAMS)
    connect().search_experiments()

    def fresh(name):
        return Path(shutil.copytree(origin, root / name))

    alone = fresh("alone")
    child(alone)
    whole, count = outputs(alone), json.loads((alone / "count.json").read_text())
    killed = {kill_at: fresh(f"killed_{kill_at}") for kill_at in range(1, count + 1, stride)}
    signals = [child(folder, kill_at=kill_at) for kill_at, folder in killed.items()]
    again = [sys.executable, str(HERE), *sys.argv[1:], "resume"]
    subprocess.run(again, env=os.environ | {"PYTHONHASHSEED": "random"}, check=True)
    wrong = {}
    for kill_at, folder in killed.items():
        ended = outputs(folder)
        differ = sorted(name for name in whole | ended if whole.get(name) != ended.get(name))
        if differ:
            wrong[kill_at] = differ
    told = {"signals": signals, "wrong": wrong, "outputs": sorted(whole)}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
