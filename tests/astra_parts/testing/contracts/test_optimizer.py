import pytest
import torch
from each_row import each_row
from pydantic import ConfigDict

from astra_core.config import NonNegative, Section
from astra_core.registry import BUILT_INS
from astra_core.training.optimization.optimizers import OptimizerPlugin
from astra_parts.testing import check_optimizer


@each_row("name", BUILT_INS["optimizer"])
def test_every_built_in_optimizer_keeps_the_contract(name):
    check_optimizer(name)


@each_row("name", ["sgd", "rmsprop"])
def test_an_optimizer_keeps_the_contract_with_options(name):
    check_optimizer(name, momentum=0.5, weight_decay=0.1)


class _Base(OptimizerPlugin):
    def optimizer(self, groups, lr):
        return torch.optim.SGD(groups, lr=lr)


class _Forgiving(_Base):
    class Options(Section):
        model_config = ConfigDict(extra="ignore")
        weight_decay: NonNegative = 0.0


class _WithoutDecay(_Base):
    class Options(Section):
        pass


class _OneRate(_Base):
    def optimizer(self, groups, lr):
        return super().optimizer([{**group, "lr": lr} for group in groups], lr)


class _Flat(_Base):
    def optimizer(self, groups, lr):
        return super().optimizer([weight for group in groups for weight in group["params"]], lr)


class _FirstGroupOnly(_Base):
    def optimizer(self, groups, lr):
        return super().optimizer(groups[:1], lr)


class _Function(_Base):
    def optimizer(self, _groups, _lr):
        return lambda: None


class _Step(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    self.change(weight)

    def change(self, weight):
        pass


class _Ascending(_Base):
    def optimizer(self, groups, lr):
        return torch.optim.SGD(groups, lr=lr, maximize=True)


class _Shrinking(_Base):
    class Own(_Step):
        def change(self, weight):
            weight.mul_(0.99)

    def optimizer(self, groups, lr):
        return self.Own(groups, lr=lr)


class _Noisy(_Base):
    class Own(_Step):
        def change(self, weight):
            if weight.grad is not None and self.param_groups[0]["params"][0] is weight:
                weight.add_(1e-4 * torch.randn_like(weight))

    def optimizer(self, groups, lr):
        return self.Own(groups, lr=lr)


class _Exploding(_Base):
    class Own(_Step):
        def change(self, weight):
            if weight.grad is not None:
                weight.mul_(float("inf"))

    def optimizer(self, groups, lr):
        return self.Own(groups, lr=lr)


class _Forgetful(_Base):
    """Takes a smaller step each time, and remembers how many outside of its state."""

    class Own(_Step):
        def step(self, closure=None):
            self.count = getattr(self, "count", 0) + 1
            for group in self.param_groups:
                group.setdefault("first_lr", group["lr"])
            rates = [group["lr"] for group in self.param_groups]
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate / self.count
            super().step(closure)
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate

    def optimizer(self, groups, lr):
        return self.Own(groups, lr=lr)


class _Secretive(_Base):
    def optimizer(self, groups, lr):
        return super().optimizer([{**group, "own": object()} for group in groups], lr)


@each_row(
    ("optimizer", "promise"),
    [
        (_Forgiving, "refuses an unknown option"),
        (_WithoutDecay, "have a weight_decay"),
        (_OneRate, "a group keeps its lr"),
        (_Flat, "the weights of the groups"),
        (_FirstGroupOnly, "the weights of the groups"),
        (_Function, "returns a torch optimiser, got function"),
        (_Ascending, "lower a loss"),
        (_Shrinking, "without a gradient stays"),
        (_Noisy, "steps can be repeated"),
        (_Exploding, "losses stay finite"),
        (_Forgetful, "goes on in the same way"),
        (_Secretive, "plain values beside weights"),
    ],
)
def test_an_optimizer_that_breaks_a_promise_is_reported_with_it(optimizer, promise):
    with pytest.raises(AssertionError, match=promise):
        check_optimizer(optimizer)
