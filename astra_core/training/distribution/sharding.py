"""Trained layers divided among the processes of a run by torch's FSDP2 (``fully_shard``).

Each process keeps its part of the layers' weights, gradients and moments; a pass gathers one layer
at a time. Parts of the engine read embeddings, the head and the last norm as plain weights, so
every process has them whole. It also has a whole copy of the layers to roll out, evaluate and save,
which needs neither gradients nor moments. Each process writes its part of a checkpoint; the parts
are read as the tensors of one process under the same names, so a run can resume with another number
of processes.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.training.distribution.distributed import World

_MIB = 1 << 20


class Shards:
    """A copy of the attacker with divided layers; the other weights are the attacker's own.

    ``attacker``: the model that rolls out, which is kept equal to the copy.
    """

    def __init__(self, attacker: LanguageModel, *, world: World) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if attacker.plan.reading == "lone":
            msg = (
                "training.sharding must be 'none' for a model that reads each row alone, since its "
                "processes would gather layers at different times, got 'full'"
            )
            raise ConfigurationError(msg)
        self._attacker, self._world = attacker, world
        whole = attacker.model
        layers = layers_of(whole)
        divided = {id(weight) for weight in layers.parameters()}
        kept = {id(own): own for own in whole.parameters() if id(own) not in divided}
        self.model = copy.deepcopy(whole, dict(kept))
        mesh = init_device_mesh(attacker.device.type, (world.size,))
        for layer in layers_of(self.model):
            own: Any = fully_shard(layer, mesh=mesh, reshard_after_forward=True)
            # The loss of a window is a sum over processes, and gloo supports only sums.
            own.set_gradient_divide_factor(1.0)
            own.set_force_sum_reduction_for_comms(enable=True)

    @contextmanager
    def learns(self) -> Iterator[None]:
        """While the body runs, the attacker is the copy."""
        whole, self._attacker.model = self._attacker.model, self.model
        try:
            yield
        finally:
            self._attacker.model = whole

    def gather(self) -> None:
        """Gives the attacker the weights that the copy has learned; a task of all processes."""
        whole = dict(self._attacker.model.named_parameters())
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if is_divided(weight):
                    whole[name].copy_(full(weight))

    def scatter(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes over the attacker's weights, and this process's part of whole moments."""
        whole = dict(self._attacker.model.named_parameters())
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if is_divided(weight):
                    local(weight).copy_(local(_like(whole[name], weight)))
        for weight, moments in optimizer.state.items():
            for name, value in moments.items():
                is_whole = isinstance(value, Tensor) and value.shape == weight.shape
                if is_divided(weight) and is_whole and not is_divided(value):
                    moments[name] = _like(value, weight)

    @contextmanager
    def steps(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """While the body runs, the optimiser takes weights singly: divided and whole do not mix."""
        names, groups = ("fused", "foreach"), optimizer.param_groups
        before = [{name: own[name] for name in names if name in own} for own in groups]
        for own, known in zip(groups, before, strict=True):
            own.update(dict.fromkeys(known, False))
        try:
            yield
        finally:
            for own, known in zip(groups, before, strict=True):
                own.update(known)

    def num_passes(self, num_batches: int) -> int:
        """Number of passes of each process for so many batches: all must gather equally often."""
        return -(-num_batches // self._world.size)

    def add_gradients(self, weights: Iterable[Parameter]) -> None:
        """Sums the gradients that are not divided; the pass itself has summed the others."""
        self._world.add_gradients([weight for weight in weights if not is_divided(weight)])

    def clip(self, gradients: Sequence[Tensor], limit: float) -> float:
        """The norm of partly divided gradients, before they are clipped."""
        parts = [own for own in gradients if is_divided(own)]
        others = [own for own in gradients if not is_divided(own)]
        squares = torch.zeros(1, dtype=torch.float64)
        for own in parts:
            squares += float(local(own).double().square().sum())
        self._world.add([squares])
        for own in others:
            squares += float(own.double().square().sum())
        norm = math.sqrt(float(squares))
        if norm + 1e-6 > limit:
            for own in gradients:
                local(own).mul_(limit / (norm + 1e-6))
        return norm

    def figures(self, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """Memory of this process for training: weights, as much for gradients, and moments."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        held = sum(2 * _num_bytes(weight) for weight in weights)
        for moments in optimizer.state.values():
            held += sum(_num_bytes(own) for own in moments.values() if isinstance(own, Tensor))
        return {"memory/learning_mib": held / _MIB}


def layers_of(model: Module) -> ModuleList:
    """The list of layers that has most of the weights."""
    lists = [own for own in model.modules() if isinstance(own, ModuleList) and len(own)]
    if not lists:
        msg = (
            f"training.sharding must be 'none' for {type(model).__name__}, which has no list of "
            "layers, got 'full'"
        )
        raise ConfigurationError(msg)
    return max(lists, key=lambda own: sum(weight.numel() for weight in own.parameters()))


def is_divided(tensor: Tensor) -> bool:
    """Whether this process has only a part of the tensor."""
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def full(tensor: Any) -> Any:
    """The whole tensor; for a divided one all processes must call this."""
    return tensor.full_tensor() if is_divided(tensor) else tensor


def local(tensor: Any) -> Any:
    """The part of the tensor that this process has, in the same memory."""
    return tensor.to_local() if is_divided(tensor) else tensor


def _like(whole: Tensor, divided: Any) -> Any:
    """The whole tensor, divided like another; every process has it, so nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    given = whole.detach().to(divided.device)
    return distribute_tensor(given, divided.device_mesh, divided.placements, src_data_rank=None)


def _num_bytes(tensor: Tensor) -> int:
    return int(local(tensor).nbytes)
