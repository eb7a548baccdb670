"""What a training takes of a GPU's memory, tried by one batch, and what would fit if that does not.

An update is tried without its last step, so the numbers that the optimiser keeps are added.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from astra_core.errors import TrainingError

if TYPE_CHECKING:
    from astra_core.rollout import Graph
    from astra_core.training.trainer import Trainer
    from astra_core.training.trial import Trial

# The rest is for what the allocator cannot use, and for the driver.
_USABLE = 0.95
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory in bytes.

    Attributes:
        total: That the device has.
        rollouts: The peak of rollouts.
        update: The peak of the batch that fits.
        moments: What the optimiser keeps.
        batch_size: ``training.batch_size`` of that batch.
        num_rows: Rows that it had; fewer where the trial's rollouts gave no more.
        fitting: Settings under which the configured batch fits; empty if it fits as it is.
    """

    total: int
    rollouts: int
    update: int
    moments: int
    batch_size: int
    num_rows: int
    fitting: tuple[str, ...] = ()

    def line(self, asked: int) -> str:
        """The findings for a person; ``asked`` is the configured number of rows."""
        room = f"{self.total / _MIB:,.0f} MiB of the GPU"
        if self.batch_size == asked:
            update = (self.update + self.moments) / _MIB
            few = f", tried with {self.num_rows} rows of {asked}" if self.num_rows < asked else ""
            rolled = f"{self.rollouts / _MIB:,.0f}"
            return f"rollouts take {rolled}, updates {update:,.0f} of {room}{few}"
        smaller = (
            f"training.batch_size {self.batch_size} with gradient_accumulation_steps "
            f"{-(-asked // self.batch_size)} times as large"
        )
        found = "; or ".join([smaller, *self.fitting])
        return f"training.batch_size {asked} must fit into {room}, got more; this does: {found}"


def try_memory(
    trainer: "Trainer", graphs: Sequence["Graph"], *, total: int, rollouts: int
) -> tuple["Trial", GpuMemory]:
    """The trial of the largest batch that fits, by halves, and what else would fit.

    Raises TrainingError if not even one row fits.
    """
    moments = _moments(trainer)
    room = int(_USABLE * total) - moments
    asked = trainer.config.batch_size
    size, trial = asked, _try(trainer, graphs, asked, room=room)
    while trial is None and size > 1:
        size //= 2
        trial = _try(trainer, graphs, size, room=room)
    if trial is None:
        msg = (
            f"one row of training must fit into {total / _MIB:,.0f} MiB of the GPU, got more; "
            "training.lora or a smaller attacker takes less"
        )
        raise TrainingError(msg)
    rows = min(size, trial.num_steps)
    found = GpuMemory(total, rollouts, trial.peak_bytes, moments, size, rows)
    if size == asked:
        return trial, found
    fitting = tuple(_alternatives(trainer, graphs, room=room))
    return trial, replace(found, fitting=fitting)


def _try(
    trainer: "Trainer", graphs: Sequence["Graph"], batch_size: int, *, room: int
) -> "Trial | None":
    """The trial of a batch; None if it takes more than there is."""
    import torch

    try:
        trial = trainer.dry_run(graphs, batch_size=batch_size)
    except torch.OutOfMemoryError:
        trial = None
    if trial is not None and trial.peak_bytes <= room:
        return trial
    gc.collect()
    torch.cuda.empty_cache()
    return None


def _alternatives(trainer: "Trainer", graphs: Sequence["Graph"], *, room: int) -> Iterator[str]:
    """Settings with which the configured batch fits, each tried; LoRA would start another run."""
    updates = trainer.updates
    plan, plans = updates.plan, updates.plans
    others: dict[str, dict[str, Any]] = {
        "training.gradient_checkpointing: true": {"recomputes": True},
        "training.precision: bf16": {"learns_in": "bf16"},
    }
    for name, change in others.items():
        updates.plan = replace(plan, **change)
        updates.plans = {key: replace(own, **change) for key, own in plans.items()}
        try:
            if updates.plan != plan and _try(trainer, graphs, trainer.config.batch_size, room=room):
                yield name
        finally:
            updates.plan, updates.plans = plan, plans
    if trainer.config.lora is None and _moments(trainer) > room / 4:
        yield "training.lora, which keeps numbers for few weights"


def _moments(trainer: "Trainer") -> int:
    """Bytes that the optimiser keeps: two numbers for each trained weight by Adam, else one."""
    import torch

    kept = 2 if isinstance(trainer.updates.optimizer, torch.optim.Adam) else 1
    return sum(4 * kept * weight.numel() for weight in trainer.updates.weights().values())
