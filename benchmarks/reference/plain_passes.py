"""The passes of the plain way: transformers' own ``generate``, and every position through the head.

See ``benchmarks.reference.plain``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from astra_core.algorithms.pairs import PreferencePair
from astra_core.config import GenerationConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import TokenRows, pad_rows
from astra_core.seeding import uniforms

Ids = tuple[int, ...]
"""Tokens of one context or utterance."""


class _Keyed:
    """A logits processor that leaves one token per row: the one the row's own key draws."""

    def __init__(self, keys: Sequence[bytes], count: int, width: int) -> None:
        self._uniforms = torch.from_numpy(uniforms(keys, count))
        self._width = width

    def __call__(
        self, input_ids: Int[Tensor, "B S"], scores: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        uniform = self._uniforms[:, input_ids.shape[1] - self._width].to(scores.device)
        cumulative = scores.double().softmax(dim=1).cumsum(dim=1)
        passed = cumulative > uniform[:, None] * cumulative[:, -1:]
        token = passed.int().argmax(dim=1)
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0.0)


@torch.no_grad()
def plain_generate(
    model: LanguageModel,
    contexts: Sequence[Ids],
    generation: GenerationConfiguration,
    *,
    keys: Sequence[bytes] | None = None,
) -> list[Ids]:
    """One utterance after every context, by transformers' ``generate``; its end is included.

    Args:
        model: The model that samples.
        contexts: Contexts, each read from its first token.
        generation: How tokens are drawn.
        keys: The random key of each utterance; None draws from torch's own generator.
    """
    from transformers import GenerationConfig

    rows = pad_rows(contexts, [()] * len(contexts), pad_id=0, device=model.device)
    width = rows.input_ids.shape[1]
    settings = generation.model_dump()
    processors: list[Any] = []
    if keys is not None:
        # transformers puts its own warpers after the caller's processors. So the warpers are passed
        # explicitly, the draw after them, and greedy search takes the remaining token.
        processors = [*_warpers(generation), _Keyed(keys, generation.max_new_tokens, width)]
        for name in ("temperature", "top_k", "top_p", "min_p"):
            del settings[name]
    config = GenerationConfig(
        **settings, do_sample=keys is None, eos_token_id=list(model.end_ids) or None, pad_token_id=0
    )
    spoken = model.model.generate(
        input_ids=rows.input_ids,
        attention_mask=rows.attention_mask,
        generation_config=config,
        logits_processor=processors,
    )
    return [_until_end(row, model.end_ids) for row in spoken[:, width:].tolist()]


def _warpers(generation: GenerationConfiguration) -> list[Any]:
    """Transformers' own, in the order in which ``generate`` applies them."""
    import transformers

    warpers = [transformers.TemperatureLogitsWarper(generation.temperature)]
    if generation.top_k:
        warpers.append(transformers.TopKLogitsWarper(generation.top_k))
    if generation.top_p < 1.0:
        warpers.append(transformers.TopPLogitsWarper(generation.top_p))
    if generation.min_p:
        warpers.append(transformers.MinPLogitsWarper(generation.min_p))
    return warpers


def _until_end(ids: list[int], end_ids: Sequence[int]) -> Ids:
    ends = [index for index, token in enumerate(ids) if token in end_ids]
    return tuple(ids[: ends[0] + 1] if ends else ids)


@torch.no_grad()
def plain_scores(
    model: LanguageModel, contexts: Sequence[Ids], continuations: Sequence[Ids]
) -> list[tuple[float, ...]]:
    """Log-probability of every continuation token after its context, nats, without gradient."""
    rows = pad_rows(contexts, continuations, pad_id=0, device=model.device)
    values = plain_logprobs(model.model, rows).tolist()
    return [tuple(row[: len(own)]) for row, own in zip(values, continuations, strict=True)]


def plain_logprobs(model: Any, rows: TokenRows) -> Float[Tensor, "B T"]:
    """Log-probability of each continuation token, nats, 0 at padding; by a full log-softmax."""
    output = model(
        input_ids=rows.input_ids,
        attention_mask=rows.attention_mask,
        position_ids=rows.position_ids,
        use_cache=False,
    )
    everything = output.logits[:, :-1].float().log_softmax(dim=2)
    chosen: Tensor = everything.gather(2, rows.input_ids[:, 1:, None])[:, :, 0]
    scored = chosen[:, chosen.shape[1] - rows.continuation_ids.shape[1] :]
    return scored.masked_fill(~rows.continuation_mask, 0.0)


def plain_dpo_loss(
    policy: Any, reference: Any, pairs: Sequence[PreferencePair], *, beta: float
) -> Float[Tensor, ""]:
    """The mean DPO loss of the pairs, by four forward passes.

    Nothing is cut from the graph, so where the reference's weights take a gradient, as ASTRA-RL's
    do, the backward pass runs through the reference too.
    """
    device = next(policy.parameters()).device
    sides = [
        pad_rows(
            [node.context_ids for node in nodes],
            [node.probe_ids for node in nodes],
            pad_id=0,
            device=device,
        )
        for nodes in ([pair.chosen for pair in pairs], [pair.rejected for pair in pairs])
    ]
    own = [plain_logprobs(policy, rows).sum(dim=1) for rows in sides]
    expected = [plain_logprobs(reference, rows).sum(dim=1) for rows in sides]
    margins = (own[0] - own[1]) - (expected[0] - expected[1])
    return -logsigmoid(beta * margins).mean()
