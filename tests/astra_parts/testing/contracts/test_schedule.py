import pytest
import torch
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_core.training.optimization.optimizers import SchedulePlugin
from astra_parts.testing import check_schedule

KINDS = (
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
)


@each_row("name", BUILT_INS["schedule"])
@each_row("warmup_steps", [0, 2])
def test_every_built_in_schedule_keeps_the_contract(name, warmup_steps):
    check_schedule(name, warmup_steps=warmup_steps)


@each_row("kind", KINDS)
def test_every_kind_of_transformers_keeps_the_contract(kind):
    check_schedule("transformers", kind=kind)


class _Base(SchedulePlugin):
    def factor(self, _step):
        return 1.0

    def schedule(self, optimizer, **_):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, self.factor)


class _FromZero(_Base):
    def factor(self, step):
        return step / 8


class _Negative(_Base):
    def factor(self, step):
        return 1.0 - step


class _Endless(_Base):
    def factor(self, step):
        return float("inf") if step == 6 else 1.0


class _Counting(_Base):
    """Its rates depend on how often it was asked, which no state holds."""

    count = 0

    def factor(self, _step):
        self.count += 1
        return 1.0 / self.count


class _OfAnother(_Base):
    def schedule(self, _optimizer, **steps):
        other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        return super().schedule(other, **steps)


class _Rates(_Base):
    def schedule(self, _optimizer, **_):
        return [0.1, 0.2]


class _Opaque(_Base):
    class Own(torch.optim.lr_scheduler.LambdaLR):
        def state_dict(self):
            return {**super().state_dict(), "own": torch.ones(1)}

    def schedule(self, optimizer, **_):
        return self.Own(optimizer, self.factor)


@each_row(
    ("schedule", "promise"),
    [
        (_FromZero, "the first training step learns"),
        (_Negative, "finite and not negative"),
        (_Endless, "finite and not negative"),
        (_Counting, "goes on in the same way"),
        (_OfAnother, "the optimiser that it got"),
        (_Rates, "returns a torch schedule, got list"),
        (_Opaque, "its state is plain values"),
    ],
)
def test_a_schedule_that_breaks_a_promise_is_reported_with_it(schedule, promise):
    with pytest.raises(AssertionError, match=promise):
        check_schedule(schedule)
