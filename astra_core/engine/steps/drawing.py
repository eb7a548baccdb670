"""One token per row from logits, without asking the host anything; see ``models.decoding``."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.config import GenerationConfiguration
from astra_core.models.decoding import SHIFT, draw, draw_in_blocks, processed_logits

Special = tuple[tuple[int, ...], tuple[int, ...], int | None]
"""End ids, barred ids and a spare one; see ``DecodingRules``."""


@dataclass(frozen=True, slots=True)
class DecodingRules:
    """Ids that are special in decoding, on the model's device.

    Attributes:
        end_ids: They end an utterance.
        barred: They are never drawn and have no likelihood.
        spare: One that has a likelihood; where it is drawn, another is drawn instead.
    """

    end_ids: Int[Tensor, " E"]
    barred: Int[Tensor, " X"]
    spare: Int[Tensor, " 1"] | None

    @classmethod
    def on(cls, device: torch.device, special: Special) -> Self:
        """The rules of these ids."""
        end_ids, barred, spare = special
        other = () if spare is None else (spare,)
        ends, never, redrawn = (
            torch.tensor(own, dtype=torch.long, device=device) for own in (end_ids, barred, other)
        )
        return cls(ends, never, redrawn if other else None)


def draw_token(
    logits: Float[Tensor, "R V"],
    generation: GenerationConfiguration,
    uniform: Float[Tensor, " R"],
    *,
    rules: DecodingRules,
    count: Int[Tensor, " R"],
    seen: Bool[Tensor, "R V"] | None = None,
) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"]]:
    """A token for each row and its log-probability under the unmodified logits, nats.

    Args:
        logits: Raw output of the head.
        generation: Penalty, temperature, truncation and shortest length.
        uniform: In [0, 1).
        rules: Which ids are special.
        count: How many tokens each row has drawn.
        seen: Tokens that a row has read or drawn, for a repetition penalty.
    """
    logits = logits.float()
    is_whole = generation.top_p == 1.0 and generation.min_p == 0.0
    take = draw_in_blocks if is_whole else draw
    total = logits.logsumexp(dim=1)
    # The model's output is nobody else's: what may not be drawn is barred in place.
    if len(rules.barred):
        logits.index_fill_(1, rules.barred, -torch.inf)
    if generation.min_new_tokens and len(rules.end_ids):
        early = (count < generation.min_new_tokens)[:, None]
        ends = logits.index_select(1, rules.end_ids).masked_fill(early, -torch.inf)
        logits.index_copy_(1, rules.end_ids, ends)
    token = take(processed_logits(logits, generation, seen=seen), uniform)
    if rules.spare is not None:
        chosen = processed_logits(logits, generation, seen=seen, forbidden=rules.spare)
        token = torch.where(token == rules.spare, take(chosen, uniform * SHIFT % 1.0), token)
    return token, logits.gather(1, token[:, None])[:, 0] - total
