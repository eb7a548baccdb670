"""The interface of a training service: the Tinker protocol's calls with our own types.

``tinker_client`` implements it. Everything is token ids and numbers: no text leaves the machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from astra_parts.services.records import Record

LossName = Literal["cross_entropy", "importance_sampling", "ppo", "cispo"]


@dataclass(frozen=True, slots=True)
class ServiceLoss:
    """A loss that a service computes: a sum over the tokens of all records."""

    name: LossName
    options: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AdamStep:
    """One optimiser step, as AdamW's."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One utterance to sample."""

    context: tuple[int, ...]
    seed: int
    max_tokens: int
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sampled utterance: its ids and their log-probabilities, nats."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Updated:
    """The result of an update.

    ``logprobs``: log-probabilities of every record's targets before the update, nats.
    """

    logprobs: tuple[tuple[float, ...], ...]
    figures: Mapping[str, float]


class TrainingService(Protocol):
    """A service that has the weights and the optimiser of one model."""

    def begin(self) -> None:
        """Creates the model with new adapters."""

    def go_on_from(self, path: str) -> None:
        """Creates the model with the weights and the optimiser saved at a path."""

    def update(
        self, batches: Iterable[Sequence["Record"]], loss: ServiceLoss, adam: AdamStep
    ) -> Updated:
        """Adds the gradients of all batches up and takes one step; all is queued, then awaited.

        Each batch is queued before the next one is asked for, which may take a while. Without any
        there is no step.
        """

    def save(self, name: str) -> str:
        """The path of weights and optimiser, after they are saved."""

    def publish(self, name: str) -> str:
        """The path of weights to sample from, after they are saved."""

    def draw(self, draws: Sequence[Draw], path: str | None) -> list[Drawn | Exception]:
        """Samples from the weights at a path (None: the base model); a failed draw is an error."""

    def score(
        self, sequences: Sequence[Sequence[int]], path: str | None
    ) -> list[tuple[float, ...]]:
        """Log-probability of each token except the first, given those before it, nats."""

    def download(self, path: str, archive: Path) -> bool:
        """Writes the published weights as a tar file; False if the service does not give them."""
