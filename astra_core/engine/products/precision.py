"""The precision in which a model's products are faster on this machine, found by a trial.

Processors with bf16 units take half the time or less; the others emulate bf16 and take up to forty
times as long. No list of names tells them apart, so products of the model's own sizes are timed.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import torch

from astra_core.config import SystemConfiguration
from astra_core.engine.machine import Machine
from astra_core.engine.products.linear_layers import linear_layers, matrix_of
from astra_core.engine.products.packed_linear import packed_linears
from astra_core.engine.products.routed_linear import routed_linears

Precision = Literal["fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")

# As many rows as a batch decodes, and as a pass of training reads.
_ROWS_TALKING, _ROWS_TRAINED = 64, 512
_TURNS = 5
_PATIENCE_S = 1.0
"""Of each layer's trial; at least one turn is taken."""
# bf16 rounds to three digits: the gain must justify that and exceed a trial's noise.
_WORTH_IT = 0.9
# Emulated products of the largest layers take minutes, and smaller ones say enough; of the smallest
# the casts take longer than the product.
_HOPELESS, _TELLING = 4.0, 100_000


def settle(
    config: SystemConfiguration,
    *models: Any,
    machine: Machine | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> SystemConfiguration:
    """The configuration with the precision and the size of a batch in which the models talk best.

    ``machine`` and ``clock``: see ``faster_precision``.
    """
    weights = (weight for model in models for weight in model.parameters())
    device = next((weight.device for weight in weights), torch.device("cpu"))
    found: dict[str, object] = {}
    if config.precision == "device":
        found["precision"] = of_device("device", device.type)
    if config.precision == "auto":
        largest = max(models, key=lambda model: sum(p.numel() for p in model.parameters()))
        found["precision"] = faster_precision(
            largest, is_trained=False, machine=machine, clock=clock
        )
    if not config.tokens_per_batch:
        found["tokens_per_batch"] = tokens_within_memory(models, device)
    return config.model_copy(update=found) if found else config


def of_device(asked: str, device: str) -> str:
    """What was asked for, with ``device`` replaced by the precision of this type of device."""
    if asked != "device":
        return asked
    has_units = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_units else "fp32"


def faster_precision(
    model: Any,
    *,
    is_trained: bool,
    machine: Machine | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Precision:
    """The precision in which the linear layers of a model take less time; fp32 in doubt.

    Args:
        model: Of fp32 weights.
        is_trained: True for products with gradients, as in an update; else as in decoding.
        machine: Whose routes are tried; by default this one.
        clock: In seconds.
    """
    machine = machine or Machine.here(next(model.parameters()).device.type)
    if machine.device == "cuda":
        return _faster_pass(model, is_trained=is_trained, clock=clock)
    kinds = Counter((type(layer), layer.weight.shape) for layer in linear_layers(model))
    found = {(type(layer), layer.weight.shape): layer for layer in linear_layers(model)}
    scope = _training if is_trained else _talking
    spent = dict.fromkeys(PRECISIONS, 0.0)
    for kind, count in sorted(kinds.items(), key=lambda own: own[0][1].numel()):
        layer = found[kind]
        work = _training_work(layer) if is_trained else _talking_work(layer)
        within = partial(scope, layer, machine=machine)
        for name, seconds in _seconds(work, within, device=machine.device, clock=clock).items():
            spent[name] += count * seconds
        is_telling = layer.weight.numel() >= _TELLING
        if is_telling and spent["bf16"] > _HOPELESS * spent["fp32"]:
            break
    return "bf16" if spent["bf16"] < _WORTH_IT * spent["fp32"] else "fp32"


def _seconds(
    work: Callable[[], object],
    scope: Callable[[Precision], AbstractContextManager[None]],
    *,
    device: str,
    clock: Callable[[], float],
) -> dict[Precision, float]:
    """The least time of a layer's product in each precision; the two take turns."""
    least: dict[Precision, float] = dict.fromkeys(PRECISIONS, float("inf"))
    begun = clock()
    for turn in range(1 + _TURNS):
        if turn > 1 and clock() - begun > _PATIENCE_S:
            break
        for name in PRECISIONS:
            with scope(name):
                work()  # packs the weights, which happens once
                start = clock()
                work()
                if device == "cuda":
                    torch.cuda.synchronize()
                seconds = clock() - start
            # The first turn loads code.
            least[name] = min(least[name], seconds) if turn else least[name]
    return least


def _faster_pass(model: Any, *, is_trained: bool, clock: Callable[[], float]) -> Precision:
    """By whole passes: on a GPU a single layer's time is that of starting its kernel."""
    size = model.config.get_text_config().vocab_size
    ids = torch.arange(_ROWS_TALKING * 8, device=model.device).remainder(size).view(8, -1)

    def run() -> None:
        with torch.set_grad_enabled(is_trained):
            found = model(input_ids=ids, use_cache=False).logits.float().logsumexp(dim=-1).sum()
            if is_trained:
                torch.autograd.grad(found, [p for p in model.parameters() if p.requires_grad])

    def scope(precision: Precision) -> AbstractContextManager[None]:
        return torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16")

    spent = _seconds(run, scope, device="cuda", clock=clock)
    return "bf16" if spent["bf16"] < _WORTH_IT * spent["fp32"] else "fp32"


def _talking_work(layer: Any) -> Callable[[], object]:
    rows = _rows(layer, _ROWS_TALKING)

    def multiply() -> object:
        with torch.no_grad():
            return layer(rows)

    return multiply


def _training_work(layer: Any) -> Callable[[], object]:
    rows = _rows(layer, _ROWS_TRAINED).requires_grad_()
    wanted = [rows, layer.weight] if layer.weight.requires_grad else [rows]

    def differentiate() -> object:
        found = layer(rows)
        return torch.autograd.grad(found, wanted, torch.ones_like(found))

    return differentiate


def _talking(layer: Any, precision: Precision, *, machine: Machine) -> AbstractContextManager[None]:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return packed_linears(layer, packs=machine.packs, dtype=dtype)


def _training(
    layer: Any, precision: Precision, *, machine: Machine
) -> AbstractContextManager[None]:
    if precision == "bf16":
        return torch.autocast(machine.device, dtype=torch.bfloat16)
    return routed_linears(layer, route=machine.route)


def _rows(layer: Any, count: int) -> torch.Tensor:
    # A separate generator: a trial does not affect the run's random numbers.
    numbers = torch.Generator().manual_seed(0)
    size = matrix_of(layer).shape[0]
    return torch.randn(count, size, generator=numbers).to(layer.weight.device)


_ON_A_CPU = 16384
# Of a GPU's free memory, what keys, values and logits of one pass may take; the rest is for what
# else a pass needs, for caches that are kept, and for training.
_SHARE = 1 / 4
_MOST = 1 << 18


def tokens_within_memory(models: Sequence[Any], device: torch.device) -> int:
    """Rows times positions of one pass of the largest of the models.

    A power of two, so that it is the same whenever about as much memory is free.
    """
    if device.type != "cuda":
        return _ON_A_CPU
    free, _ = torch.cuda.mem_get_info(device)
    wanted = _SHARE * free / max(map(bytes_per_token, models))
    return max(1024, min(_MOST, 1 << (int(wanted).bit_length() - 1)))


def bytes_per_token(model: Any) -> int:
    """Keys and values of one token in half precision, and the logits of every second one."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    depth = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * (2 * config.num_hidden_layers * groups * depth + config.vocab_size // 2))
