import pytest
import torch
from tiny_training import Ready, configured, trainer_of

from astra_core.algorithms.dpo import DPO
from astra_core.errors import TrainingError
from tasks.trials.gpu_memory import try_memory

TOTAL = 1 << 40


class Large(DPO):
    """Takes more memory than there is for more pairs than ``most``."""

    most = 2

    def step(self, batch):
        if batch.weight > self.most:
            raise torch.OutOfMemoryError
        return super().step(batch)


def tried(most, *, total=TOTAL):
    kind = type("Own", (Large,), {"most": most})
    trainer = trainer_of(configured(batch_size=4), algorithm=kind, sampler=Ready)
    plan = trainer.updates.plan
    graphs = trainer.sampler.roll_out(trainer.sampler.prompts[:2], iteration=0)
    found = try_memory(trainer, graphs, total=total, rollouts=3 << 20)
    assert plan == trainer.updates.plan
    return *found, trainer


def test_a_batch_that_fits_is_told_with_what_the_optimiser_keeps():
    trial, memory, trainer = tried(4)
    weights = sum(own.numel() for own in trainer.updates.weights().values())

    assert (4, 8 * weights) == (memory.batch_size, memory.moments)
    updates = (trial.peak_bytes + memory.moments) / 2**20
    assert f"rollouts take 3, updates {updates:,.0f} of {TOTAL / 2**20:,.0f} MiB" in memory.line(4)


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    trial, memory, _ = tried(2)

    assert 2 == memory.batch_size
    assert trial.loss > 0
    line = memory.line(4)
    assert "training.batch_size 4 must fit into" in line
    assert "training.batch_size 2 with gradient_accumulation_steps 2 times as large" in line


def test_where_no_row_fits_it_is_one_line():
    with pytest.raises(TrainingError, match=r"one row of training must fit .* training\.lora"):
        tried(0)


def test_a_peak_beyond_the_memory_does_not_fit_either():
    with pytest.raises(TrainingError, match="must fit into 1 MiB"):
        tried(4, total=1 << 20)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_peak_is_that_of_the_batch():
    trainer = trainer_of(configured(batch_size=4), sampler=Ready, device="cuda")
    graphs = trainer.sampler.roll_out(trainer.sampler.prompts[:2], iteration=0)
    held = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(0).total_memory
    trial, memory = try_memory(trainer, graphs, total=total, rollouts=held)

    assert held < trial.peak_bytes < held + (1 << 30)
    assert (4, ()) == (memory.batch_size, memory.fitting)
    # The weights, their gradients and what is kept for those take more than this.
    with pytest.raises(TrainingError, match="one row of training"):
        try_memory(trainer, graphs, total=held, rollouts=held)
