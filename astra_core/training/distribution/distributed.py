"""Data-parallel training of one attacker in processes that torchrun or accelerate started.

Each rolls out its share of an experience's prompts (rollouts depend only on keys), receives all
rollouts, and computes its share of the micro-batches of each update. Gradients are summed, so all
have the same weights at any time. Only process 0 writes. Every wait for another process has a time
limit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from astra_core.errors import LostProcessError, TrainingError
from astra_core.errors.exception_text import shorten
from astra_core.training.distribution.launch import check_launch, world_size

TIMEOUT_S = 1800.0

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a run; a single process needs no communication."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, *, device: torch.device | str = "cpu", timeout_s: float = TIMEOUT_S) -> Self:
        """The world that torchrun's environment describes; a single process without one.

        Raises ConfigurationError if the environment describes no group of processes,
        LostProcessError if the others did not join in time.
        """
        size = world_size() or 1
        if size == 1:
            return cls()
        if not torch.distributed.is_initialized():
            check_launch()
            backend = "gloo"
            if torch.device(device).type == "cuda":
                # Gradients go through NCCL, from device to device, everything else through gloo.
                backend = "cpu:gloo,cuda:nccl"
                torch.cuda.set_device(device)
            with lost_is_reported():
                torch.distributed.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        return cls(torch.distributed.get_rank(), size)

    def leave(self) -> None:
        """Ends the communication."""
        if self.size > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """True in the process that writes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Returns when every process has reached this point.

        Raises LostProcessError if one crashed or is too slow.
        """
        if self.size > 1:
            self.add([torch.zeros(1)])

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by its sum over the processes, in one message per device and type.

        Raises LostProcessError if a process crashed or is too slow.
        """
        if self.size == 1:
            return
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        for members in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in members])
            with lost_is_reported():
                torch.distributed.all_reduce(flat)
            sums = torch.split(flat, [tensor.numel() for tensor in members])
            for tensor, total in zip(members, sums, strict=True):
                tensor.copy_(total.reshape(tensor.shape))

    def add_gradients(self, weights: Iterable[Parameter]) -> None:
        """Leaves the sum of all processes' gradients in each; a missing one counts as zero."""
        if self.size == 1:
            return
        gradients = []
        for weight in weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            gradients.append(weight.grad)
        self.add(gradients)

    def sum_of(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums by name over the processes; a name that one does not know counts as zero there."""
        totals: dict[str, float] = {}
        for own in self.gather(dict(values)):
            for name, value in own.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with lost_is_reported():
            torch.distributed.all_gather_object(found, value)
        return found

    def share(self, values: Sequence[Value]) -> Sequence[Value]:
        """Every ``size``-th of the values, from the ``rank``-th on; all shares make the whole."""
        return values[self.rank :: self.size]

    def whole(self, share: Sequence[Value]) -> list[Value]:
        """The results of all shares, in the order of the values that were shared."""
        shares = self.gather(share)
        return [
            own[place]
            for place in range(max(map(len, shares)))
            for own in shares
            if place < len(own)
        ]

    def first_says(self, text: str) -> str:
        """The text of process 0, in every process."""
        if self.size == 1:
            return text
        said = [text]
        with lost_is_reported():
            torch.distributed.broadcast_object_list(said, src=0)
        return said[0]

    def check_equal(self, text: str, subject: str) -> None:
        """Raises TrainingError unless every process gave the same text."""
        if self.first_says(text) != text:
            msg = (
                f"{subject} must be the same in every process, got another in process {self.rank}; "
                "run them on equal machines with equal parameters"
            )
            raise TrainingError(msg)


@contextmanager
def lost_is_reported() -> Iterator[None]:
    """Reports a lost process as one of this project's errors."""
    try:
        yield
    except RuntimeError as error:
        reason = shorten(str(error).strip().partition("\n")[0], limit=140)
        msg = (
            f"every process must take part until the end, got: {reason}; start all again to resume"
        )
        raise LostProcessError(msg) from error
