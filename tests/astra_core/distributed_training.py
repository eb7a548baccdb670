"""One of several processes that train together: ``python distributed_training.py FOLDER [WHAT]``.

torchrun's variables say which. With ``die``, process 1 leaves without a word in its second update.
With ``late``, the hour is over by the clock of process 0 alone, amid the updates of an experience.
"""

import os
import sys
import time
from pathlib import Path

import torch
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.training.distributed import World

CONFIG = {
    "optimizer": choice("sgd"),
    "max_grad_norm": 0.5,
    "gradient_accumulation_steps": 2,
    "metric": "eval/kl_nats",
    "eval_every": 1,
}
"""Two processes of 2 micro-batches make windows of 4."""
LATE = {"epochs_per_experience": 9, "early_stopping": {"max_seconds": 1800.0}}


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    world = World.join(timeout_s=20.0)
    what = "".join(sys.argv[2:])
    config = configured(batch_size=2, **{**CONFIG, **(LATE if what == "late" else {})})
    trainer = trainer_of(config, folder / "run", world=world)
    trainer.resume()

    def on_step(report):
        if what == "die" and world.rank == 1 and report.step == 2:
            os._exit(7)
        if what == "late" and world.rank == 0 and report.step == 2:
            time.monotonic = lambda before=time.monotonic: before() + 3600.0

    trainer.train(on_step)
    (folder / f"weights_{world.rank}").write_bytes(weights_of(trainer))
    (folder / f"rows_{world.rank}").write_text(str(trainer.progress))
    world.leave()


if __name__ == "__main__":
    main()
