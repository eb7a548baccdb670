"""One of several processes that train together: ``python distributed_training.py FOLDER [WHAT]``.

With ``sharded``, layers are divided; ``sharded-die`` is both, ``cuda-sharded`` on a device for each
process. With ``ahead``, experiences are collected one ahead.

torchrun's variables say which. With ``die``, process 1 leaves without a word in its second update.
With ``late``, the hour is over by the clock of process 0 alone, amid the updates of an experience.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.samplers.tree import TreeSampler
from astra_core.training.distribution.distributed import World

CONFIG = {
    "optimizer": choice("sgd"),
    "max_grad_norm": 0.5,
    "gradient_accumulation_steps": 2,
    "metric": "eval/kl_nats",
    "eval_every": 1,
}
"""Two processes of 2 micro-batches make windows of 4."""
LATE = {"epochs_per_experience": 9, "early_stopping": {"max_seconds": 1800.0}}
AHEAD = {"staleness": {"max_versions": 1}}
WIDE = {
    **CONFIG,
    "optimizer": choice("sgd", momentum=0.9),
    "gradient_accumulation_steps": 64,
    "epochs_per_experience": 2,
}
"""A window is a whole experience, for any number of processes, which get unequal shares of it."""


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    what = "".join(sys.argv[2:])
    device = f"cuda:{os.environ['RANK']}" if "cuda" in what else "cpu"
    # Nobody comes to the one that is alone; others come when a busy machine has started them.
    world = World.join(device=device, timeout_s=5.0 if what == "alone" else 90.0)
    changes = LATE if what == "late" else {}
    if what == "ahead":
        changes = AHEAD
    if "sharded" in what:
        changes = {**WIDE, "sharding": "full"}
    config = configured(batch_size=2, **{**CONFIG, **changes})
    layers = 2 if "sharded" in what else 1
    trainer = trainer_of(config, folder / "run", world=world, device=device, layers=layers)
    trainer.resume()

    reports, examined, grow = [], [], TreeSampler.grow

    def watched(sampler, prompts, *sizes, purpose, **others):
        if purpose == "evaluation":
            examined.append(len(prompts))
        return grow(sampler, prompts, *sizes, purpose=purpose, **others)

    TreeSampler.grow = watched

    def on_step(report):
        reports.append(report)
        if what.endswith("die") and world.rank == 1 and report.step == 2:
            os._exit(7)
        if what == "late" and world.rank == 0 and report.step == 2:
            time.monotonic = lambda before=time.monotonic: before() + 3600.0

    trainer.train(on_step)
    (folder / f"weights_{world.rank}").write_bytes(weights_of(trainer))
    (folder / f"rows_{world.rank}").write_text(str(trainer.progress))
    losses = [report.loss for report in reports]
    mib = reports[-1].timings.get("memory/learning_mib")
    figures = [point.metrics for point in trainer.progress.evaluations]
    (folder / f"said_{world.rank}").write_text(
        json.dumps({"losses": losses, "mib": mib, "examined": examined, "figures": figures})
    )
    world.leave()


if __name__ == "__main__":
    main()
