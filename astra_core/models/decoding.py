"""From logits to one token: the processors in transformers' order, then inverse-CDF sampling.

Each processor equals the transformers class of the same name. Sampling takes one uniform number
per row from that row's own key, so a row's token does not depend on the batch it shares.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.config import GenerationConfiguration


def processed_logits(
    logits: Float[Tensor, "B V"],
    generation: GenerationConfiguration,
    *,
    seen: Bool[Tensor, "B V"] | None = None,
    forbidden: Int[Tensor, " E"] | None = None,
) -> Float[Tensor, "B V"]:
    """Logits of the distribution that a token is drawn from.

    Args:
        logits: Raw output of the language-model head.
        generation: Penalty, temperature and truncation to apply.
        seen: Tokens that occur before this position; needed for a repetition penalty other than 1.
        forbidden: Tokens that may not come now, such as an end before the minimum length.
    """
    if generation.repetition_penalty != 1.0 and seen is not None:
        penalty = generation.repetition_penalty
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        logits = torch.where(seen, penalised, logits)
    if forbidden is not None:
        logits = logits.index_fill(1, forbidden, -torch.inf)
    if generation.temperature != 1.0:
        logits = logits / generation.temperature
    if 0 < generation.top_k < logits.shape[1]:
        floor = logits.topk(generation.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    if generation.top_p < 1.0:
        logits = _nucleus(logits, generation.top_p)
    if generation.min_p > 0.0:
        shares = logits.softmax(dim=1)
        floor = shares.amax(dim=1, keepdim=True) * generation.min_p
        logits = logits.masked_fill(shares < floor, -torch.inf)
    return logits


def _nucleus(logits: Float[Tensor, "B V"], top_p: float) -> Float[Tensor, "B V"]:
    """Logits with the tail outside of the smallest set of probability ``top_p`` removed."""
    ascending, order = logits.sort(dim=1)
    removed = ascending.softmax(dim=1).cumsum(dim=1) <= 1.0 - top_p
    removed[:, -1] = False
    return logits.masked_fill(removed.scatter(1, order, removed), -torch.inf)


def draw(logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The token at which the cumulative distribution of each row passes its uniform number."""
    cumulative = logits.double().softmax(dim=1).cumsum(dim=1)
    # Scaled by the last value, which rounding leaves a hair off one: a token of probability zero at
    # the end of the vocabulary must never be drawn.
    threshold = uniform.double()[:, None] * cumulative[:, -1:]
    return (cumulative <= threshold).sum(dim=1).clamp(max=logits.shape[1] - 1)
