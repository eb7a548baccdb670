"""Constrained mode: one term is held above a level while the others are maximised.

A Lagrange multiplier weights the term that is held. Dual ascent moves it after every experience: it
grows while the term's mean is below its level and falls while it is above.
"""

import torch

from astra_core.config import NonNegative, Positive, Section


class ConstraintOptions(Section):
    """Which term is held, at what level, and how fast the multiplier moves."""

    term: str
    at_least: float
    step_size: Positive = 0.5
    initial: NonNegative = 1.0
    largest: Positive = 20.0


class Multiplier:
    """The weight of the term that is held, moved by dual ascent.

    The reward is ``(objective + m * term) / (1 + m)``: its size stays when ``m`` grows.

    Sources:
        Diversity as the objective and success as the constraint: Zhao et al., DiveR-CT,
        arXiv:2405.19026. Dual ascent and the division: PPO-Lagrangian of Ray, Achiam and Amodei,
        "Benchmarking safe exploration in deep reinforcement learning" (2019).

    Attributes:
        value: The multiplier, one number.
    """

    def __init__(self, options: ConstraintOptions) -> None:
        self._options = options
        start = min(options.initial, options.largest)
        self.value = torch.tensor([start], dtype=torch.float64)

    @property
    def weight(self) -> float:
        """The weight of the term that is held."""
        return float(self.value)

    def shortfall(self, mean: float) -> float:
        """How far a mean of the term is below its level; negative above it."""
        return self._options.at_least - mean

    def move(self, mean: float) -> None:
        """One step of dual ascent.

        Args:
            mean: Of the term, unweighted and not normalised, over the turns of an experience.
        """
        moved = self.weight + self._options.step_size * self.shortfall(mean)
        self.value.fill_(max(0.0, min(self._options.largest, moved)))
