"""Root-mean-square norms in one kernel instead of transformers' eight."""

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
