"""Training on a device other than the CPU: nothing that meets there may have stayed behind."""

import numpy as np
import pytest
import torch
from distributed_training import WIDE
from each_row import wide_but
from other_device import NAME, OtherTensor, other_device
from started_processes import SIZE, as_numbers, ended, left_in, started
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.registry import BUILT_INS
from astra_core.training.distribution.distributed import World
from astra_core.training.distribution.sharding import Shards, full
from astra_parts.testing import tiny_language_model

CONFIG = {
    "training_steps": 2,
    "eval_every": 1,
    "metric": "eval/kl_nats",
    # The fused kernels that Adam's moments are for exist on real devices only.
    "optimizer": choice("sgd", momentum=0.9),
}


@pytest.fixture
def device():
    with other_device() as found:
        yield found


@pytest.mark.real
def test_the_other_device_computes_and_refuses_what_a_gpu_refuses(device):
    there, here = torch.tensor([1.0, 2.0], device=device), torch.ones(2)

    assert [2.0, 3.0] == (there + here.to(device)).tolist()
    assert device == (there * 2 + torch.tensor(1.0)).device
    assert [2.0] == there[torch.tensor([1])].tolist()
    assert [1.0, 1.0] == there.copy_(here).cpu().tolist()
    with pytest.raises(RuntimeError, match="must have all tensors on one device"):
        there + here
    with pytest.raises(RuntimeError, match="must have all tensors on one device"):
        here.index_select(0, torch.zeros(1, dtype=torch.long, device=device))
    with pytest.raises(TypeError, match="to numpy"):
        there.numpy()


# load_state_dict believes that nothing can be copied to a device of this name.
@pytest.mark.real
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize("name", wide_but(BUILT_INS["algorithm"], "dpo"))
def test_training_there_gives_the_weights_of_the_cpu(tmp_path, name):
    # One experience has several updates; the tests of resuming have two.
    config = configured(algorithm=choice(name), **CONFIG | {"training_steps": 1})
    expected = trainer_of(config, tmp_path / "cpu")
    expected.train()
    with other_device():
        found = trainer_of(config, tmp_path / "other", device=NAME)
        found.train()

        assert isinstance(next(found.sampler.system.attacker.model.parameters()), OtherTensor)
        gap = np.abs(as_numbers(weights_of(found)) - as_numbers(weights_of(expected)))
    assert 1e-6 >= gap.max()
    assert as_numbers(weights_of(expected)).shape == gap.shape
    # Distillation from a teacher that is alike moves nothing: rounding decides which step is best.
    assert expected.best.value == pytest.approx(found.best.value, abs=1e-5)


# PPO has a critic to resume besides.
@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize("name", wide_but(["dpo", "ppo"], "ppo"))
def test_resuming_there_gives_the_weights_of_a_whole_run(tmp_path, name):
    config = configured(algorithm=choice(name), **CONFIG)
    with other_device():
        whole = trainer_of(config, tmp_path / "whole", device=NAME)
        whole.train()
        cut = trainer_of(config, tmp_path / "cut", device=NAME)
        next(report for report in cut.steps() if report.training_step == 2)
        again = trainer_of(config, tmp_path / "cut", device=NAME)
        assert again.resume()
        assert 1 == again.progress.training_step
        again.train()

        assert weights_of(whole) == weights_of(again)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def deterministic(monkeypatch):
    """Kernels as the training stage chooses them."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.filterwarnings("ignore:cumsum_cuda_kernel")
@pytest.mark.parametrize(("name", "compiles"), [("dpo", False), ("dpo", True), ("ppo", False)])
def test_training_on_cuda_in_bf16_resumes_bit_for_bit(tmp_path, deterministic, name, compiles):
    settings = {
        "algorithm": choice(name),
        "optimizer": choice("adamw"),
        "precision": "bf16",
        "compile": compiles,
    }
    config = configured(**CONFIG | settings)
    whole = trainer_of(config, tmp_path / "whole", device="cuda")
    whole.train()
    cut = trainer_of(config, tmp_path / "cut", device="cuda")
    next(report for report in cut.steps() if report.training_step == 2)
    again = trainer_of(config, tmp_path / "cut", device="cuda")
    assert again.resume()
    assert 1 == again.progress.training_step
    again.train()

    assert "cuda" == again.sampler.system.attacker.device.type
    assert weights_of(whole) == weights_of(again)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.filterwarnings("ignore:cumsum_cuda_kernel")
def test_training_on_cuda_in_fp32_gives_the_weights_of_the_cpu(tmp_path, deterministic):
    config = configured(**CONFIG)
    expected = trainer_of(config, tmp_path / "cpu")
    found = trainer_of(config, tmp_path / "cuda", device="cuda")
    expected.train()
    found.train()

    assert 1e-4 >= np.abs(as_numbers(weights_of(found)) - as_numbers(weights_of(expected))).max()


needs_two = pytest.mark.skipif(
    torch.cuda.device_count() < SIZE, reason=f"needs {SIZE} CUDA devices, one for each process"
)


# Here and not beside the other tests of sharding, which hold the one group of their process.
@pytest.mark.gpu
@needs_cuda
def test_divided_layers_on_cuda_have_the_gradients_of_plain_ones():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    try:
        attacker = tiny_language_model(0, layers=2, is_trained=True)
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
    alone = trainer_of(configured(batch_size=4, **WIDE), tmp_path / "alone", layers=2)
    losses = [report.loss for report in alone.steps()]
    said, weights = left_in(tmp_path)

    assert weights[0] == weights[1]
    assert said[0]["losses"] == said[1]["losses"] == pytest.approx(losses, abs=1e-3)
    assert 1e-3 >= np.abs(as_numbers(weights[0]) - as_numbers(weights_of(alone))).max()
