"""From logits to one token: the processors in transformers' order, then inverse-CDF sampling.

Each processor equals the transformers class of the same name. Sampling takes one uniform number
per row from that row's own key, so a row's token does not depend on the batch it shares.

``draw`` of ``processed_logits`` is the definition; ``sample`` gives the same tokens without sorting
the vocabulary.
"""

from collections.abc import Mapping

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
    # Stable: of equal logits at the edge the same one is dropped, however many others there are.
    ascending, order = logits.sort(dim=1, stable=True)
    removed = ascending.double().softmax(dim=1).cumsum(dim=1) <= 1.0 - top_p
    removed[:, -1] = False
    return logits.masked_fill(removed.scatter(1, order, removed), -torch.inf)


def draw(logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The token at which the cumulative distribution of each row passes its uniform number."""
    cumulative = logits.double().softmax(dim=1).cumsum(dim=1)
    # Scaled by the last value, which rounding leaves slightly off one: a token of probability zero
    # at the end of the vocabulary must never be drawn.
    threshold = uniform.double()[:, None] * cumulative[:, -1:]
    return (cumulative <= threshold).sum(dim=1).clamp(max=logits.shape[1] - 1)


def sample(
    logits: Float[Tensor, "B V"],
    generation: GenerationConfiguration,
    uniform: Float[Tensor, " B"],
    *,
    seen: Bool[Tensor, "B V"] | None = None,
    forbidden: Int[Tensor, " E"] | None = None,
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """One token per row and its log-probability under the unmodified logits, nats.

    The arguments are those of ``processed_logits``; ``uniform`` lies in [0, 1).
    """
    size = len(logits) if logits.is_cuda else max(_AT_ONCE // logits.shape[1], 1)
    tokens, logprobs = [], []
    for at in range(0, len(logits), size):
        rows = slice(at, at + size)
        own, read = logits[rows].float(), None if seen is None else seen[rows]
        token = _token(own, generation, uniform[rows], seen=read, forbidden=forbidden)
        tokens.append(token)
        logprobs.append(own.gather(1, token[:, None])[:, 0] - own.logsumexp(dim=1))
    return torch.cat(tokens), torch.cat(logprobs)


def _token(
    logits: Float[Tensor, "B V"],
    generation: GenerationConfiguration,
    uniform: Float[Tensor, " B"],
    *,
    seen: Bool[Tensor, "B V"] | None,
    forbidden: Int[Tensor, " E"] | None,
) -> Int[Tensor, " B"]:
    likely = _likely(logits, generation, seen=seen, forbidden=forbidden)
    if likely is None:
        chosen = processed_logits(logits, generation, seen=seen, forbidden=forbidden)
        is_whole = generation.top_p == 1.0 and generation.min_p == 0.0
        return draw_in_blocks(chosen, uniform) if is_whole else draw(chosen, uniform)
    ids, values, is_open = likely
    rest = generation.model_copy(update=_FOR_TOP_K if generation.top_k else _FOR_TOP_P)
    token = ids.gather(1, draw(processed_logits(values, rest), uniform)[:, None])[:, 0]
    if len(rows := is_open.nonzero()[:, 0]):
        read = None if seen is None else seen[rows]
        chosen = processed_logits(logits[rows], generation, seen=read, forbidden=forbidden)
        token[rows] = draw(chosen, uniform[rows])
    return token


# Of the 53 binary digits of a uniform number, the last half are a number of their own.
SHIFT = 2.0**26
# What has been applied once only the likely tokens are left.
_FOR_TOP_K: Mapping[str, float] = {"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 0}
_FOR_TOP_P = {**_FOR_TOP_K, "top_p": 1.0}
# More candidates than top-k needs, to detect ties at the edge.
_SPARE = 8
# Candidates for a nucleus: to find them takes an eighth of the time of sorting 49,152 logits,
# and at the temperatures of chat models few nuclei are larger.
_LIKELIEST = 1024
_BLOCK = 64
# Logits of the rows that a processor looks at together: in double precision a few of them, with
# what is sorted and summed, still lie in its cache.
_AT_ONCE = 2**20


def _likely(
    logits: Float[Tensor, "B V"],
    generation: GenerationConfiguration,
    *,
    seen: Bool[Tensor, "B V"] | None,
    forbidden: Int[Tensor, " E"] | None,
) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B C"], Bool[Tensor, " B"]] | None:
    """The tokens that top-k or top-p leaves, in the vocabulary's order, and their processed logits.

    Last the rows of which more are left than were examined, or are tied at the edge. None if
    neither truncates, or most tokens are left.
    """
    if not generation.top_k and generation.top_p == 1.0:
        return None
    count = generation.top_k + _SPARE if generation.top_k else _LIKELIEST
    if 2 * count > logits.shape[1]:
        return None
    first = generation.model_copy(update={"top_k": 0, "top_p": 1.0, "min_p": 0.0})
    whole = processed_logits(logits, first, seen=seen, forbidden=forbidden)
    values, ids = whole.topk(count, dim=1)
    num_kept = torch.full_like(ids[:, :1], generation.top_k)
    behind = torch.full_like(num_kept, count - 1)
    if not generation.top_k:
        # Kept is what comes before the nucleus is full; so the likeliest is, whatever top_p is.
        shares = (values - whole.double().logsumexp(dim=1, keepdim=True)).exp()
        before = shares.cumsum(dim=1) - shares
        num_kept = (before < generation.top_p).sum(dim=1, keepdim=True).clamp(min=1)
        behind = num_kept.clamp(max=count - 1)
    floor = values.gather(1, num_kept - 1)
    is_open = (values.gather(1, behind) == floor)[:, 0]
    values = values.masked_fill(values < floor, -torch.inf)
    ids, order = ids.sort(dim=1)
    return ids, values.gather(1, order), is_open


def draw_in_blocks(logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """What ``draw`` returns, to rounding: first the block of the vocabulary, then the token."""
    rows, size = logits.shape
    top = logits.amax(dim=1, keepdim=True)
    if logits.is_cuda:
        weights = (logits - top).exp()
        if size % _BLOCK:
            weights = torch.nn.functional.pad(weights, (0, -size % _BLOCK))
    else:
        weights = logits.new_zeros(rows, size + -size % _BLOCK)
        torch.sub(logits, top, out=weights[:, :size])
        weights[:, :size].exp_()
    blocks = weights.view(rows, -1, _BLOCK)
    sums = blocks.sum(dim=2, dtype=torch.float64).cumsum(dim=1)
    threshold = uniform.double()[:, None] * sums[:, -1:]
    block = (sums <= threshold).sum(dim=1).clamp(max=sums.shape[1] - 1)
    before = torch.nn.functional.pad(sums, (1, 0)).gather(1, block[:, None])
    inner = blocks[torch.arange(rows, device=logits.device), block].double().cumsum(dim=1)
    # Rounding may put the threshold just behind the block's end, where no token is.
    offset = (inner <= (threshold - before)).sum(dim=1)
    last = (inner < inner[:, -1:]).sum(dim=1)
    return block * _BLOCK + torch.minimum(offset, last)
