"""The contract of a learning-rate schedule."""

import json
import math
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim.lr_scheduler import LRScheduler

from astra_core.training.optimization.optimizers import SchedulePlugin
from astra_parts.testing.contracts.common import built, promise

_NUM_STEPS = 8
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
    chosen: SchedulePlugin = built("schedule", plugin, options)
    optimizer, schedule = _made(chosen, warmup_steps)
    rates = [_moved(chosen, optimizer, schedule) for _ in range(_NUM_BEFORE)]
    promise(min(rates[0]) > 0.0, f"the first training step learns, got rates {rates[0]}")
    try:
        record = json.loads(json.dumps(schedule.state_dict()))
    except (TypeError, ValueError) as error:
        promise(holds=False, words=f"its state is plain values, got: {error}")
        raise
    other, resumed = _made(chosen, warmup_steps)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(record)
    rest = [_moved(chosen, optimizer, schedule) for _ in range(_NUM_STEPS - _NUM_BEFORE)]
    for own in (*rates, *rest):
        holds = all(math.isfinite(rate) and rate >= 0.0 for rate in own)
        promise(holds, f"a rate is finite and not negative, got {own}")
    again = [_moved(chosen, other, resumed) for _ in range(_NUM_STEPS - _NUM_BEFORE)]
    promise(rest == again, f"a restored schedule goes on in the same way, got {again}, not {rest}")


def _made(plugin: SchedulePlugin, warmup_steps: int) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """An optimiser of two groups and the plug-in's schedule over it."""
    groups = [{"params": [Parameter(torch.ones(2))], "lr": rate} for rate in _RATES]
    optimizer = torch.optim.SGD(groups, lr=_RATES[0])
    made = plugin.schedule(optimizer, warmup_steps=warmup_steps, training_steps=_NUM_STEPS)
    is_one = isinstance(made, LRScheduler)
    promise(is_one, f"schedule returns a torch schedule, got {type(made).__name__}")
    promise(made.optimizer is optimizer, "it moves the rates of the optimiser that it got")
    return optimizer, made


def _moved(
    plugin: SchedulePlugin, optimizer: torch.optim.Optimizer, schedule: LRScheduler
) -> list[float]:
    """The rates of one training step, after which it is evaluated and the schedule is moved."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    optimizer.step()
    plugin.move(schedule)
    if plugin.metric is not None:
        plugin.move(schedule, {plugin.metric: 0.5})
    return rates
