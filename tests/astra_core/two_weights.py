"""An algorithm of two weights, whose updates can be reckoned by hand."""

from dataclasses import dataclass

import torch

from astra_core.algorithm import Algorithm
from astra_core.config import TrainingConfiguration
from astra_core.engine.plan import Plan
from astra_core.training.distribution.distributed import World
from astra_core.training.update import Updates
from astra_parts.testing import tiny_system


@dataclass(frozen=True)
class Batch:
    weight: float = 1.0
    num_tokens: int = 1


class TwoWeights(Algorithm):
    """Loss ``first + second``, so that each has gradient 1."""

    def __init__(self, options, *, system):
        super().__init__(options, system=system)
        system.attacker.model.requires_grad_(False)
        self.own = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]

    def flatten(self, _graph):
        return []

    def collate(self, _steps):
        return Batch()

    def step(self, _batch):
        return self.own[0] + self.own[1], {}

    def parameters(self):
        return self.own


def updates_of(*, kind=TwoWeights, world=None, machine=None, **changes):
    system = tiny_system()
    system.attacker.plan = Plan.of(system.attacker.model, machine)
    algorithm = kind(kind.Options(), system=system)
    plain = {"lr": 1.0, "optimizer": {"name": "sgd"}, "max_grad_norm": None}
    config = TrainingConfiguration(**plain | changes)
    return Updates(config, algorithm, system.attacker, world=world or World()), algorithm
