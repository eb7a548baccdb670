"""Trains while a killer strikes: ``python killed_training.py FOLDER STRIDE [VERSIONS]``.

One run is left alone. Each other is a child process that is killed by SIGKILL at another of the
moments at which a run begins a stage of an iteration (each of these), or writes, moves or removes
something, or reports an update (every STRIDE-th), and is then started again in a process that
orders sets otherwise. With VERSIONS, experiences are collected that far ahead. Prints, as JSON, how
many moments there are, which of them begin a stage, the signals that ended the killed runs, and the
moments after which a run ended otherwise than the one that was left alone.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import torch
from remembering import Curriculum, Momentum
from tiny_training import configured, trainer_of, weights_of
from tqdm import tqdm

from astra_core.files import file_digest, write_text

VERSIONS = int(sys.argv[3]) if len(sys.argv) > 3 else 0
MOMENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open"}


class Staged(Momentum):
    """Says when a stage begins."""

    def stages(self):
        def struck(stage):
            def effect(iteration):
                self.strike()
                yield from stage.effect(iteration) or ()

            return replace(stage, effect=effect)

        return [struck(stage) for stage in super().stages()]


def train(folder, *, kill_at=None):
    """Trains to the end, or is killed on the way; leaves what it ended with in ``folder``."""
    count, stages = [0], []

    def live_through(moment, arguments):
        touches = any(str(folder) in str(argument) for argument in arguments)
        writes = moment != "open" or "w" in str(arguments[1])
        if moment in MOMENTS and touches and writes:
            strike()

    def strike():
        count[0] += 1
        if count[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(live_through)
    config = configured(
        training_steps=2,
        num_episodes_per_experience=1,
        batch_size=16,
        algorithm={"name": "ppo"},
        metric="eval/kl_nats",
        eval_every=1,
        staleness={"max_versions": VERSIONS, "correction": "token" if VERSIONS else "none"},
    )
    own = {"sampler": Curriculum, "trainer": Staged}
    trainer = trainer_of(config, folder / "run", **own)
    trainer.strike = lambda: (stages.append(count[0] + 1), strike())
    trainer.resume()
    trainer.train(lambda _: strike())
    ended = [weights_of(trainer).hex(), trainer.progress.stopped_because]
    newest = max((folder / "run").glob("step_*"))
    ended += [file_digest(newest / name) for name in ("state.safetensors", "record.json")]
    write_text(json.dumps([*ended, stages, count[0]]), folder / "ended.json")


def child(folder, *, kill_at=None):
    """The signal that ended a run of its own process, or 0."""
    process = os.fork()
    if process == 0:
        # All processes share the lock of before: one that is killed while it has it keeps it.
        tqdm.set_lock(threading.RLock())
        status = 1
        try:
            train(folder, kill_at=kill_at)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    return -os.waitstatus_to_exitcode(status)


def ended_with(folder):
    *ended, stages, count = json.loads((folder / "ended.json").read_text())
    return ended, stages, count


def main():
    torch.set_num_threads(1)
    root, stride = Path(sys.argv[1]), int(sys.argv[2])
    # In this process, so that its children need not import everything again.
    if "resume" in sys.argv:
        for folder in sys.argv[5:]:
            child(Path(folder))
        return
    train(root / "whole")
    whole, stages, count = ended_with(root / "whole")
    moments = sorted({*range(1, count, stride), *stages})
    killed = {kill_at: root / f"killed_{kill_at}" for kill_at in moments}
    signals = [child(folder, kill_at=kill_at) for kill_at, folder in killed.items()]
    again = [sys.executable, __file__, str(root), str(stride), str(VERSIONS), "resume"]
    # By name: one that was killed at the first moment has no folder.
    again += map(str, killed.values())
    subprocess.run(again, env=os.environ | {"PYTHONHASHSEED": "random"}, check=True)
    wrong = [kill_at for kill_at, folder in killed.items() if ended_with(folder)[0] != whole]
    sys.stdout.write(
        json.dumps({"count": count, "stages": stages, "signals": signals, "wrong": wrong})
    )


if __name__ == "__main__":
    main()
