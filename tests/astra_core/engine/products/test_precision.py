import os
import platform
import subprocess
import sys

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.config import SystemConfiguration
from astra_core.engine.products.precision import (
    bytes_per_token,
    faster_precision,
    settle,
    tokens_within_memory,
)

ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="a switch of x86 processors")


class Clock:
    """A clock of the products: one of bf16 takes ``bf16`` seconds, one of fp32 takes 1."""

    def __init__(self, bf16):
        self.now, self.bf16, self.asked = 0.0, bf16, []

    def __call__(self):
        return self.now


class Slow(torch.nn.Module):
    """Tells the clock in which precision it was asked to multiply."""

    def __init__(self, clock, *, size=8):
        super().__init__()
        self.layer = torch.nn.Linear(size, size)
        self.layer.register_forward_hook(self.count)
        self.clock = clock

    def count(self, _layer, _rows, found):
        # Under autocast the result is bf16; of what talks so small a layer has another forward.
        is_talking = not torch.is_grad_enabled()
        is_bf16 = found.dtype == torch.bfloat16 or (is_talking and "forward" in vars(self.layer))
        self.clock.asked.append("bf16" if is_bf16 else "fp32")
        self.clock.now += self.clock.bf16 if is_bf16 else 1.0


@each_row("is_trained", [True, False])
@each_row(("seconds", "expected"), [(0.5, "bf16"), (0.95, "fp32"), (1.0, "fp32"), (40.0, "fp32")])
def test_the_faster_precision_is_taken_and_fp32_in_doubt(is_trained, seconds, expected):
    clock = Clock(seconds)

    assert expected == faster_precision(Slow(clock), is_trained=is_trained, clock=clock)


def test_precisions_take_turns_and_a_slow_trial_is_short():
    quick, slow = Clock(0.001), Clock(1000.0)
    for clock in (quick, slow):
        faster_precision(Slow(clock), is_trained=True, clock=clock)

    # Each is called once to be laid out and once to be timed.
    assert ["fp32", "fp32", "bf16", "bf16"] == quick.asked[:4]
    assert 2 * 4 == len(slow.asked)


@each_row(("seconds", "num_layers"), [(40.0, 1), (3.0, 2)])
def test_emulated_products_are_told_by_the_smallest_layer(seconds, num_layers):
    """On such processors the products of a large vocabulary take minutes."""
    clock = Clock(seconds)
    model = torch.nn.Sequential(Slow(clock, size=400), Slow(clock, size=320))

    assert "fp32" == faster_precision(model, is_trained=True, clock=clock)
    assert 8 * num_layers == len(clock.asked)
    assert not any("forward" in vars(own.layer) for own in model)


def test_a_trial_moves_no_random_number_gradient_or_weight():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    state = torch.get_rng_state()
    before = [weight.detach().clone() for weight in model.parameters()]
    for is_trained in (True, False):
        assert faster_precision(model, is_trained=is_trained) in {"fp32", "bf16"}

    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, before, model.parameters()))
    assert not any(weight.grad is not None for weight in model.parameters())
    assert not any("forward" in vars(layer) for layer in model)


def test_a_model_without_linear_layers_stays_in_fp32():
    assert "fp32" == faster_precision(torch.nn.Embedding(4, 4), is_trained=False)


@each_row("precision", ["fp32", "bf16"])
def test_what_is_said_is_not_tried(precision):
    config = SystemConfiguration(precision=precision)
    clock = Clock(0.5)

    assert precision == settle(config, Slow(clock), clock=clock).precision
    assert [] == clock.asked


def test_of_several_models_the_largest_is_tried():
    config, clock, other = SystemConfiguration(precision="auto"), Clock(0.5), Clock(0.5)
    small = Slow(other, size=2)

    assert "bf16" == settle(config, small, Slow(clock), clock=clock).precision
    assert clock.asked
    assert not other.asked


@pytest.mark.real
@ON_X86
def test_where_the_processor_imitates_bf16_the_trial_takes_fp32():
    # Products of bf16 take forty times as long then: no load of the machine hides it.
    code = (
        "import torch; from astra_core.engine.products.precision import faster_precision;"
        "print(*(faster_precision(torch.nn.Linear(512, 512), is_trained=x) for x in (True, False)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert "fp32 fp32" == told.strip()


def test_a_batch_has_room_for_keys_values_and_half_of_the_logits():
    # Two layers of two groups, four wide, keys and values; a vocabulary of twenty.
    assert 2 * (2 * 2 * 2 * 4 + 10) == bytes_per_token(tiny_model("llama grouped"))


def test_the_size_is_a_power_of_two_that_fits_the_free_memory(monkeypatch):
    model, gpu = tiny_model("llama grouped"), torch.device("cuda")
    sizes = []
    for free in (1 << 22, (1 << 22) + (1 << 20), 1 << 23, 1 << 40):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        sizes.append(tokens_within_memory([model], gpu))

    assert [8192, 8192, 16384, 1 << 18] == sizes
    assert 16384 == tokens_within_memory([model], torch.device("cpu"))
