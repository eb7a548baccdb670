"""A dry run: whether one batch works, before an expensive long run."""

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from astra_core.algorithm import restore, tensors_by_name
from astra_core.errors import TrainingError
from astra_core.rollout import Graph
from astra_core.training.harness import Experience, Harness
from astra_core.training.update import Updates


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one batch.

    ``peak_bytes``: the most memory held: by the batch on the GPU where the attacker is on one, else
    the process's resident memory.
    """

    num_steps: int
    num_tokens: int
    loss: float
    grad_norm: float
    peak_bytes: int
    experience: Experience
    gradient_s: float


def try_batch(
    harness: Harness, updates: Updates, *, graphs: Sequence[Graph] | None, batch_size: int
) -> Trial:
    """One batch rolled out, read and differentiated; weights and memories are unchanged.

    Raises TrainingError if the loss or a gradient is not finite, or there is nothing to learn.
    """
    sampler = harness.sampler
    device = sampler.system.attacker.device
    owners = {"reward": sampler.reward, "algorithm": harness.algorithm, "sampler": sampler}
    before = {
        kind: {name: own.clone() for name, own in tensors_by_name(kind, owner).items()}
        for kind, owner in owners.items()
    }
    ahead, harness.ahead = harness.ahead, None
    try:
        experience = harness.experience(0, graphs=graphs)
        if not experience.steps:
            msg = (
                f"an experience must offer something to learn, got {len(experience.graphs)} graphs "
                "without a step; more prompts or other options of training.algorithm may give some"
            )
            raise TrainingError(msg)
        batch = next(harness.batches(experience, epoch=0, batch_size=batch_size))
        if updates.plan.compiles_passes:
            # The first pass of a shape is compiled, which no later one waits for.
            updates.gradients([batch], training_step=0)
            updates.zero_grad()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        start = time.perf_counter()
        loss, _ = updates.gradients([batch], training_step=0)
        norm = updates.clip()
        seconds = time.perf_counter() - start
    finally:
        updates.zero_grad()
        harness.ahead = ahead
        for kind, owner in owners.items():
            restore(kind, owner, before[kind])
    if not (math.isfinite(loss) and math.isfinite(norm)):
        msg = f"loss and gradients must be finite, got loss {loss} and norm {norm}; see the models"
        raise TrainingError(msg)
    return Trial(
        num_steps=len(experience.steps),
        num_tokens=batch.num_tokens,
        loss=loss,
        grad_norm=norm,
        peak_bytes=_peak_bytes(device),
        experience=experience,
        gradient_s=seconds,
    )


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
