"""Divided layers on CUDA, apart from the other tests: a process has one group, which they hold."""

import json

import numpy as np
import pytest
import torch
from distributed_training import WIDE
from started_processes import SIZE, as_numbers, ended, started
from tiny_training import configured, trainer_of, weights_of

from astra_core.testing import tiny_language_model
from astra_core.training.distribution.distributed import World
from astra_core.training.distribution.sharding import Shards, full

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_two = pytest.mark.skipif(
    torch.cuda.device_count() < SIZE, reason=f"needs {SIZE} CUDA devices, one for each process"
)


@pytest.mark.gpu
@needs_cuda
def test_divided_layers_on_cuda_have_the_gradients_of_plain_ones():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    try:
        attacker = tiny_language_model(0, is_trained=True)
        attacker.model.to("cuda").tie_weights()
        divided = Shards(attacker, world=World())
        ids = torch.tensor([[1, 2, 3, 4]], device="cuda")
        with divided.learns():
            attacker.model(ids).logits.logsumexp(-1).sum().backward()
        found = {name: full(p.grad).clone() for name, p in divided.model.named_parameters()}
        norm = divided.clip([p.grad for p in divided.model.parameters()], 1.0)
        attacker.model.zero_grad()
        attacker.model(ids).logits.logsumexp(-1).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    plain = {name: p.grad for name, p in attacker.model.named_parameters()}

    for name, gradient in plain.items():
        torch.testing.assert_close(gradient, found[name], rtol=1e-4, atol=1e-4)
    whole = torch.nn.utils.get_total_norm(list(plain.values()))
    assert float(whole) == pytest.approx(norm, rel=1e-4)


@pytest.mark.gpu
@needs_two
def test_two_devices_learn_what_one_process_learns_on_the_cpu(tmp_path):
    statuses = ended(started(tmp_path, "cuda-sharded"))
    assert [0, 0] == [status for status, _ in statuses], statuses
    alone = trainer_of(configured(batch_size=4, **WIDE), tmp_path / "alone")
    losses = [report.loss for report in alone.steps()]
    said = [json.loads((tmp_path / f"said_{rank}").read_text()) for rank in range(SIZE)]
    weights = [(tmp_path / f"weights_{rank}").read_bytes() for rank in range(SIZE)]

    assert weights[0] == weights[1]
    assert said[0]["losses"] == said[1]["losses"] == pytest.approx(losses, abs=1e-3)
    assert 1e-3 >= np.abs(as_numbers(weights[0]) - as_numbers(weights_of(alone))).max()
