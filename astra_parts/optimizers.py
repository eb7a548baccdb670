"""Optimisers beside the Adam family; each is torch's own, with its options typed."""

from collections.abc import Sequence
from typing import Any, Self, cast

import torch
from pydantic import model_validator

from astra_core.config import NonNegative, Positive, Probability, Section
from astra_core.training.optimization.optimizers import OptimizerPlugin


class SGD(OptimizerPlugin):
    """Stochastic gradient descent."""

    class Options(Section):
        """See ``torch.optim.SGD``."""

        momentum: Probability = 0.0
        nesterov: bool = False
        weight_decay: NonNegative = 0.0

        @model_validator(mode="after")
        def _nesterov_has_momentum(self) -> Self:
            if self.nesterov and not self.momentum:
                msg = "nesterov must come with momentum above 0"
                raise ValueError(msg)
            return self

    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Torch's SGD."""
        options = cast(SGD.Options, self.options)
        return torch.optim.SGD(groups, lr=lr, momentum=options.momentum, nesterov=options.nesterov)


class RMSprop(OptimizerPlugin):
    """RMSprop."""

    class Options(Section):
        """See ``torch.optim.RMSprop``."""

        alpha: Probability = 0.99
        eps: Positive = 1e-8
        momentum: Probability = 0.0
        centered: bool = False
        weight_decay: NonNegative = 0.0

    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Torch's RMSprop."""
        options = self.options.model_dump(exclude={"weight_decay"})
        return torch.optim.RMSprop(groups, lr=lr, **options)


class Adagrad(OptimizerPlugin):
    """Adagrad (Duchi et al., JMLR 2011)."""

    class Options(Section):
        """See ``torch.optim.Adagrad``."""

        lr_decay: NonNegative = 0.0
        eps: Positive = 1e-10
        weight_decay: NonNegative = 0.0

    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Torch's Adagrad."""
        options = self.options.model_dump(exclude={"weight_decay"})
        return torch.optim.Adagrad(groups, lr=lr, **options)
