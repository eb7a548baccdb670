"""The contract of an optimiser."""

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.lr_scheduler import LRScheduler

from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.resume.state import optimizer_record, restore_optimizer
from astra_parts.testing.contracts.common import are_equal, build_plugin, promise

_LR = 0.05
_NUM_STEPS = 20


def check_optimizer(plugin: str | type[OptimizerPlugin], **options: Any) -> None:
    """Raises AssertionError unless an optimiser may be named under ``training.optimizer``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``; options without a
      ``weight_decay`` are not complete, since the Trainer reads it.
    - ``optimizer(groups, lr)`` returns a torch optimiser of the groups' weights and no others. A
      group keeps the ``lr`` and the ``weight_decay`` that it names, and ``parts``.
    - Steps lower a convex loss and stay finite; they are the same when they are repeated.
    - A weight without a gradient, or with the rate 0, stays the same: that is how parts are frozen.
    - Its state is tensors and plain values: restored from them, it continues in the same way.

    ``plugin``: a built-in name, an import path or a file's, or the class.
    """
    chosen: OptimizerPlugin = build_plugin("optimizer", plugin, options)
    promise(hasattr(chosen.options, "weight_decay"), "its Options have a weight_decay")
    weights = _weights()
    optimizer = _optimizer(chosen, weights)
    losses = [_step(optimizer, weights) for _ in range(_NUM_STEPS)]
    promise(all(map(math.isfinite, losses)), f"losses stay finite, got {losses[-1]}")
    promise(losses[-1] < losses[0], f"steps lower a loss, got {losses[0]} and then {losses[-1]}")
    start = _weights()
    for name, words in (("idle", "without a gradient"), ("frozen", "of rate 0")):
        promise(torch.equal(weights[name], start[name]), f"a weight {words} stays as it is")
    again = _weights()
    repeated = _optimizer(chosen, again)
    same = [_step(repeated, again) for _ in range(_NUM_STEPS)]
    promise(losses == same, "steps can be repeated")
    _check_state(chosen, optimizer, weights)


def _weights() -> dict[str, Parameter]:
    """A matrix and a vector that are trained, one without a gradient and one with the rate 0."""
    values = {
        "matrix": torch.tensor([[2.0, -1.5], [0.5, 1.0]]),
        "vector": torch.tensor([1.0, -2.0]),
        "idle": torch.tensor([[1.0, 2.0]]),
        "frozen": torch.tensor([[3.0, 4.0]]),
    }
    return {name: Parameter(value) for name, value in values.items()}


def _optimizer(plugin: OptimizerPlugin, weights: Mapping[str, Parameter]) -> torch.optim.Optimizer:
    """Its optimiser over these weights; the groups must be those that were given."""
    settings = {
        "matrix": {"weight_decay": 0.01, "lr": _LR},
        "vector": {"weight_decay": 0.0, "lr": _LR / 2},
        "idle": {"weight_decay": 0.01, "lr": _LR},
        "frozen": {"weight_decay": 0.01, "lr": 0.0},
    }
    groups: list[dict[str, Any]] = [
        {"params": [weights[name]], "parts": [name], **own} for name, own in settings.items()
    ]
    made = plugin.optimizer(groups, _LR)
    is_one = isinstance(made, torch.optim.Optimizer)
    promise(is_one, f"optimizer returns a torch optimiser, got {type(made).__name__}")
    found = [([*map(id, group["params"])], group.get("parts")) for group in made.param_groups]
    expected = [([id(weights[name])], [name]) for name in settings]
    promise(found == expected, "it optimises the weights of the groups, in their order")
    for group, own in zip(made.param_groups, settings.values(), strict=True):
        for key, value in own.items():
            promise(group[key] == value, f"a group keeps its {key}, {value}, got {group[key]}")
    return made


def _step(optimizer: torch.optim.Optimizer, weights: Mapping[str, Parameter]) -> float:
    """The loss before one step."""
    optimizer.zero_grad(set_to_none=True)
    learning = [weight for name, weight in weights.items() if name != "idle"]
    loss = torch.stack([((weight - 0.25) ** 2).sum() for weight in learning]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def _check_state(
    plugin: OptimizerPlugin, optimizer: torch.optim.Optimizer, weights: Mapping[str, Parameter]
) -> None:
    copied = {name: Parameter(weight.detach().clone()) for name, weight in weights.items()}
    resumed = _optimizer(plugin, copied)
    try:
        groups = json.loads(json.dumps(optimizer_record(optimizer), allow_nan=False))
    except (TypeError, ValueError) as error:
        promise(holds=False, words=f"groups hold plain values beside weights, got: {error}")
        raise
    restore_optimizer(resumed, groups, _moments(optimizer))
    for _ in range(2):
        _step(optimizer, weights)
        _step(resumed, copied)
    are_alike = are_equal([*weights.values()], [*copied.values()])
    promise(are_alike, "a restored optimiser goes on in the same way")


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Its state under the names of a checkpoint."""
    found = {}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            holds = isinstance(value, Tensor | int | float)
            promise(holds, f"its state is tensors and numbers, got {type(value).__name__}")
            found[f"optimizer/{index}/{name}"] = torch.as_tensor(value).detach().clone()
    return found


_NUM_MOVES = 8
_NUM_BEFORE = 3
_RATES = (0.1, 0.05)


def check_schedule(
    plugin: str | type[SchedulePlugin], *, warmup_steps: int = 2, **options: Any
) -> None:
    """Raises AssertionError unless a schedule may be named under ``training.schedule``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - ``schedule(optimizer, warmup_steps=, training_steps=)`` returns a torch schedule of the same
      optimiser, which ``move`` advances once per training step, or with every figure of an
      evaluation if it follows a ``metric``.
    - The rate of every group is finite and not negative in every training step, and above 0 in the
      first, which would otherwise learn nothing.
    - Its state is plain values: restored from them, it gives the rates that would have followed.

    ``plugin``: a built-in name, an import path or a file's, or the class.
    """
    chosen: SchedulePlugin = build_plugin("schedule", plugin, options)
    optimizer, schedule = _make_schedule(chosen, warmup_steps)
    rates = [_next_rates(chosen, optimizer, schedule) for _ in range(_NUM_BEFORE)]
    promise(min(rates[0]) > 0.0, f"the first training step learns, got rates {rates[0]}")
    try:
        record = json.loads(json.dumps(schedule.state_dict()))
    except (TypeError, ValueError) as error:
        promise(holds=False, words=f"its state is plain values, got: {error}")
        raise
    other, resumed = _make_schedule(chosen, warmup_steps)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(record)
    rest = [_next_rates(chosen, optimizer, schedule) for _ in range(_NUM_MOVES - _NUM_BEFORE)]
    for own in (*rates, *rest):
        holds = all(math.isfinite(rate) and rate >= 0.0 for rate in own)
        promise(holds, f"a rate is finite and not negative, got {own}")
    again = [_next_rates(chosen, other, resumed) for _ in range(_NUM_MOVES - _NUM_BEFORE)]
    promise(rest == again, f"a restored schedule goes on in the same way, got {again}, not {rest}")


def _make_schedule(
    plugin: SchedulePlugin, warmup_steps: int
) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """An optimiser of two groups and the plug-in's schedule over it."""
    groups = [{"params": [Parameter(torch.ones(2))], "lr": rate} for rate in _RATES]
    optimizer = torch.optim.SGD(groups, lr=_RATES[0])
    made = plugin.schedule(optimizer, warmup_steps=warmup_steps, training_steps=_NUM_MOVES)
    is_one = isinstance(made, LRScheduler)
    promise(is_one, f"schedule returns a torch schedule, got {type(made).__name__}")
    promise(made.optimizer is optimizer, "it moves the rates of the optimiser that it got")
    return optimizer, made


def _next_rates(
    plugin: SchedulePlugin, optimizer: torch.optim.Optimizer, schedule: LRScheduler
) -> list[float]:
    """The rates of one training step, after which it is evaluated and the schedule is moved."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    optimizer.step()
    plugin.move(schedule)
    if plugin.metric is not None:
        plugin.move(schedule, {plugin.metric: 0.5})
    return rates
