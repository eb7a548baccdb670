"""Layers of transformers in fewer kernels, which read, write and keep less for the gradient."""

from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class FusedNorm(torch.nn.Module):
    """A root-mean-square norm with a weight (Zhang and Sennrich, arXiv:1910.07467)."""

    def __init__(self, weight: torch.nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = weight, eps

    def forward(self, states: Float[Tensor, "*B H"]) -> Float[Tensor, "*B H"]:
        """The states divided by their root mean square, times the weight."""
        return torch.nn.functional.rms_norm(
            states, self.weight.shape, self.weight, self.variance_epsilon
        )


@torch.no_grad()
def use_fused_norms(model: Any) -> int:
    """Replaces every norm that computes the same, found by numbers; returns how many."""
    found = [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) is not FusedNorm and _is_alike(child)
    ]
    for module, name, child in found:
        setattr(module, name, FusedNorm(child.weight, child.variance_epsilon))
    return len(found)


def _is_alike(norm: Any) -> bool:
    eps, weight = getattr(norm, "variance_epsilon", None), getattr(norm, "weight", None)
    if eps is None or weight is None or weight.dim() != 1 or len(list(norm.parameters())) != 1:
        return False
    numbers = torch.Generator().manual_seed(0)
    states = torch.randn(2, len(weight), generator=numbers).to(weight)
    fused = FusedNorm(norm.weight, eps)(states)
    scale = float(fused.abs().max()) or 1.0
    return float((norm(states) - fused).abs().max()) <= 4 * torch.finfo(weight.dtype).eps * scale


def use_fused_gelu(model: Any) -> int:
    """Replaces every ``gelu_new`` by torch's kernel of the same formula; returns how many.

    transformers computes the tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415) in eight
    operations, each of which reads and writes the widest tensor of a layer, and keeps most of them
    for the gradient. The kernel's result is the same to rounding.
    """
    from transformers.activations import GELUTanh, NewGELUActivation

    found = [
        (module, name)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) is NewGELUActivation
    ]
    for module, name in found:
        setattr(module, name, GELUTanh().train(module.training))
    return len(found)


class _GatedProduct(torch.autograd.Function):
    """silu(gate) * up. Its gradient computes silu again: kept, it is as wide as what it is of."""

    @staticmethod
    def forward(gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(gate) * up

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a gradient of this gradient, which the kernel has not
            share = gate.sigmoid()
            slope = share * (1.0 + gate * (1.0 - share))
            return gradient * up * slope, gradient * gate * share
        of_gate = torch.ops.aten.silu_backward(gradient * up, gate)
        return of_gate, gradient * torch.nn.functional.silu(gate)


def _feed_forward(self: Any, states: Float[Tensor, "*B H"]) -> Float[Tensor, "*B H"]:
    inner = _GatedProduct.apply(self.gate_proj(states), self.up_proj(states))  # type: ignore[no-untyped-call]
    found: Tensor = self.down_proj(inner)
    return found


@torch.no_grad()
def use_gated_products(model: Any) -> int:
    """Runs every gated feed-forward layer (Shazeer, arXiv:2002.05202) by one product; how many.

    Of a Llama's activations that are kept for the gradient this is one eighth.
    """
    layers = [module for module in model.modules() if _has_gate(module)]
    # Layers of one class compute the same, and to ask each would read all of a large model.
    examples = {type(layer): layer for layer in layers}
    alike = {kind for kind, layer in examples.items() if _is_gated(layer)}
    found = [layer for layer in layers if type(layer) in alike]
    for layer in found:
        layer.forward = MethodType(_feed_forward, layer)
    return len(found)


def _has_gate(module: Any) -> bool:
    names = {name for name, _ in module.named_children()}
    is_named = names == {"gate_proj", "up_proj", "down_proj", "act_fn"}
    return is_named and type(module.gate_proj) is torch.nn.Linear and "forward" not in vars(module)


def _is_gated(module: Any) -> bool:
    weight = module.gate_proj.weight
    numbers = torch.Generator().manual_seed(0)
    states = torch.randn(2, weight.shape[1], generator=numbers).to(weight)
    states[1] *= 1e3  # another layer may limit them
    return not weight.is_meta and torch.equal(module(states), _feed_forward(module, states))
