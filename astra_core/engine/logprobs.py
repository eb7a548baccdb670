"""Hidden states and log-probabilities of given continuations, with gradient."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.engine.bars import bars_of, lower_barred
from astra_core.engine.compilation import is_compiled
from astra_core.engine.distributions import collision_logprobs, label_logprobs_and_entropies
from astra_core.engine.head import label_logprobs
from astra_core.engine.masks import attention_masks
from astra_core.engine.plan import Plan
from astra_core.engine.steps.stepper import round_up
from astra_core.engine.trees.packing import PackedRows, packed_rows
from astra_core.engine.trees.tree_attention import with_blocks
from astra_core.models.rows import (
    TokenRows,
    chosen_logprobs,
    lone_logits,
    padded_logits,
    padded_logprobs,
)

# If merging leaves more than this share of the tokens, padding is cheaper.
_WORTH_PACKING = 0.9
# A GPU attends to rows several times faster than to trees, and merging itself takes longer there.
_WORTH_PACKING_THERE = 0.4
# Compiled passes have a multiple of so many columns.
_COLUMNS = 64


def token_logprobs(
    model: Any,
    rows: TokenRows,
    *,
    states: Float[Tensor, "B T+1 H"] | None = None,
    plan: Plan | None = None,
) -> Float[Tensor, "B T"]:
    """Log-probability of each continuation token, nats; exactly 0 at padding.

    What sequences share is computed once, and logits at the scored positions only. It is the value
    and the gradient of ``padded_logprobs``, to rounding.

    Args:
        model: A causal LM of transformers.
        rows: Contexts and continuations.
        states: What ``continuation_states`` gave, if it is known.
        plan: How the model is run; by default ``Plan.of`` it.
    """
    mask = rows.continuation_mask
    if not mask.any():
        return padded_logprobs(model, rows)
    plan = plan or Plan.of(model)
    if not plan.abilities.has_plain_head:
        return _plain_logprobs(model, rows, plan)
    places, labels = _places(mask), rows.continuation_ids[mask]
    states = continuation_states(model, rows, plan=plan) if states is None else states
    own, head = _at(states, places), _plain_head(model, plan)
    if head is None:
        logits = lower_barred(model.get_output_embeddings()(own), bars_of(model))
        values = chosen_logprobs(logits, labels)
    else:
        values = label_logprobs(head, own, labels, route=plan.route, barred=bars_of(model))
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def token_logprobs_and_entropies(
    model: Any,
    rows: TokenRows,
    *,
    states: Float[Tensor, "B T+1 H"] | None = None,
    plan: Plan | None = None,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """What ``token_logprobs`` gives, and the entropy of the distribution each token was drawn from.

    Both are nats with a gradient; exactly 0 at padding.
    """
    mask, plan = rows.continuation_mask, plan or Plan.of(model)
    head = _plain_head(model, plan)
    if not mask.any():
        chosen = entropies = padded_logprobs(model, rows)[mask]
    elif head is None:
        logs = _shares(token_logits(model, rows, states=states, plan=plan))
        chosen = logs.gather(1, rows.continuation_ids[mask][:, None])[:, 0]
        entropies = -(logs.exp() * logs).sum(dim=1)
    else:
        places, labels = _places(mask), rows.continuation_ids[mask]
        states = continuation_states(model, rows, plan=plan) if states is None else states
        chosen, entropies = label_logprobs_and_entropies(
            head, _at(states, places), labels, route=plan.route, barred=bars_of(model)
        )
    blank = chosen.new_zeros(mask.shape)
    return blank.masked_scatter(mask, chosen), blank.masked_scatter(mask, entropies)


def token_logprobs_and_collisions(
    model: Any, rows: TokenRows, *, plan: Plan | None = None
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """What ``token_logprobs`` gives, and the log of the sum of squared probabilities at each token.

    The second, in nats too, is without gradient and 0 at padding. It is the log of the mean
    probability of what the model draws itself.
    """
    mask, plan = rows.continuation_mask, plan or Plan.of(model)
    head = _plain_head(model, plan)
    if not mask.any():
        logprobs = padded_logprobs(model, rows)
        return logprobs, torch.zeros_like(logprobs)
    if head is None:
        logprobs = token_logprobs(model, rows, plan=plan)
        with torch.no_grad():
            values = (2.0 * _shares(token_logits(model, rows, plan=plan))).logsumexp(dim=1)
    else:
        states = continuation_states(model, rows, plan=plan)
        logprobs = token_logprobs(model, rows, states=states, plan=plan)
        own = states[:, :-1][mask]
        values = collision_logprobs(head, own, route=plan.route, barred=bars_of(model))
    return logprobs, values.new_zeros(mask.shape).masked_scatter(mask, values)


def token_logits(
    model: Any,
    rows: TokenRows,
    *,
    states: Float[Tensor, "B T+1 H"] | None = None,
    plan: Plan | None = None,
) -> Float[Tensor, "S V"]:
    """Logits before every real continuation token, row by row, in fp32."""
    plan = plan or Plan.of(model)
    if not plan.abilities.has_plain_head:
        return _plain_logits(model, rows, plan).float()
    states = continuation_states(model, rows, plan=plan) if states is None else states
    logits: Tensor = model.get_output_embeddings()(states[:, :-1][rows.continuation_mask])
    return lower_barred(logits, bars_of(model)).float()


def _places(mask: Bool[Tensor, "B T"]) -> Int[Tensor, " S"]:
    """Where the mask is true, counted through; known before the states, which nothing waits for."""
    return mask.flatten().nonzero()[:, 0]


def _at(states: Float[Tensor, "B T+1 H"], places: Int[Tensor, " S"]) -> Float[Tensor, "S H"]:
    """The states before these tokens."""
    return states[:, :-1].flatten(0, 1).index_select(0, places)


def _plain_head(model: Any, plan: Plan) -> torch.nn.Linear | None:
    """The output layer if it only multiplies; an adapter around it, of a subclass, does more."""
    head = model.get_output_embeddings()
    is_plain = plan.abilities.has_plain_head and type(head) is torch.nn.Linear
    return head if is_plain else None


def _shares(logits: Float[Tensor, "S V"]) -> Float[Tensor, "S V"]:
    """Log-probabilities of these logits; a barred token's are the lowest finite number."""
    # A barred token has probability 0, and 0 * -inf is nan.
    return logits.log_softmax(dim=1).clamp(min=torch.finfo(logits.dtype).min)


def _plain_logprobs(model: Any, rows: TokenRows, plan: Plan) -> Float[Tensor, "B T"]:
    mask = rows.continuation_mask
    if plan.abilities.takes_padding:
        return padded_logprobs(model, rows)
    values = chosen_logprobs(_plain_logits(model, rows, plan), rows.continuation_ids[mask])
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def _plain_logits(model: Any, rows: TokenRows, plan: Plan) -> Float[Tensor, "S V"]:
    """Logits before every real continuation token, with the model's own head."""
    mask = rows.continuation_mask
    if plan.abilities.takes_padding:
        return padded_logits(model, rows)[mask]
    counts = mask.sum(dim=1).tolist()
    pairs = zip(rows.sequences(), counts, strict=True)
    return torch.cat([lone_logits(model, ids)[len(ids) - n - 1 : -1] for ids, n in pairs])


def continuation_states(
    model: Any, rows: TokenRows, *, plan: Plan | None = None
) -> Float[Tensor, "B T+1 H"]:
    """The last hidden state before each continuation token and, in the last place, after the last.

    Entries at padding hold any state.
    """
    plan = plan or Plan.of(model)
    if plan.aligns_rows and not (plan.packs_trees and _share(rows) <= _WORTH_PACKING_THERE):
        return _aligned_states(model, rows, rounds=is_compiled(model))
    sequences = rows.sequences()
    num_tokens = sum(map(len, sequences))
    if plan.packs_trees:
        packed = packed_rows(sequences, device=rows.input_ids.device)
        if packed.num_tokens <= _WORTH_PACKING * num_tokens:
            return _packed_states(model, packed, rows)
    if plan.reading == "lone":
        return _lone_states(model, sequences, rows)
    output = model.base_model(
        input_ids=rows.input_ids,
        attention_mask=rows.attention_mask,
        position_ids=rows.position_ids,
        use_cache=False,
    )
    tail = rows.continuation_ids.shape[1]
    states: Tensor = output.last_hidden_state[:, -(tail + 1) :]
    return states


def _share(rows: TokenRows) -> float:
    """The share of the tokens that is left where rows of one context read it once."""
    width = rows.input_ids.shape[1] - rows.continuation_ids.shape[1]
    contexts, masks = (table[:, :width].cpu() for table in (rows.input_ids, rows.attention_mask))
    first = torch.unique(contexts.masked_fill(masks == 0, -1), dim=0)
    total = int(rows.attention_mask.sum())
    return (int((first >= 0).sum()) + total - int(masks.sum())) / max(total, 1)


def _aligned_states(model: Any, rows: TokenRows, *, rounds: bool) -> Float[Tensor, "B T+1 H"]:
    """Every row from the first column on: what is behind its end is after it, so nothing is hidden.

    Without a mask a GPU takes its quickest attention, whose gradient is the same each time.
    ``rounds`` adds blank rows and columns up to one of few shapes, each of which is compiled.
    """
    size, tail = rows.input_ids.shape[1], rows.continuation_ids.shape[1]
    places = torch.arange(size, device=rows.input_ids.device)
    shift = rows.attention_mask.argmax(dim=1, keepdim=True)
    ids = rows.input_ids.gather(1, (places + shift).clamp(max=size - 1))
    if rounds:
        blank = -size % _COLUMNS, round_up(len(ids)) - len(ids)
        ids = torch.nn.functional.pad(ids, (0, blank[0], 0, blank[1]))
    output = model.base_model(input_ids=ids, use_cache=False)
    # The state before the first token of a continuation is the last one of its context.
    wanted = (places[size - tail - 1 :] - shift).clamp(min=0)
    states: Tensor = output.last_hidden_state
    own = torch.arange(len(wanted), device=ids.device)[:, None] * ids.shape[1]
    flat = (wanted + own).flatten()
    return states.flatten(0, 1).index_select(0, flat).view(*wanted.shape, states.shape[2])


def _lone_states(
    model: Any, sequences: list[list[int]], rows: TokenRows
) -> Float[Tensor, "B T+1 H"]:
    """Each row alone and unpadded; zeros at padding."""
    tail = rows.continuation_ids.shape[1]
    found = []
    for ids, count in zip(sequences, rows.continuation_mask.sum(dim=1).tolist(), strict=True):
        row = torch.tensor([ids], device=rows.input_ids.device)
        states = model.base_model(input_ids=row, use_cache=False).last_hidden_state[0]
        own = states[len(ids) - count - 1 :]
        found.append(torch.nn.functional.pad(own, (0, 0, 0, tail - count)))
    return torch.stack(found)


def _packed_states(model: Any, packed: PackedRows, rows: TokenRows) -> Float[Tensor, "B T+1 H"]:
    positions = packed.positions
    distances = positions[:, :, None] - positions[:, None, :]
    masks = attention_masks(model.config, packed.visible, distances, dtype=_attention_dtype(model))
    for mask in masks.values() if isinstance(masks, dict) else [masks]:
        with_blocks(mask, packed.blocks)
    output = model.base_model(
        input_ids=packed.input_ids, attention_mask=masks, position_ids=positions, use_cache=False
    )
    num_context = rows.attention_mask.sum(dim=1) - rows.continuation_mask.sum(dim=1)
    tail = rows.continuation_ids.shape[1]
    order = num_context[:, None] - 1 + torch.arange(tail + 1, device=positions.device)
    places = packed.places.gather(1, order.clamp(max=packed.places.shape[1] - 1))
    states: Tensor = output.last_hidden_state.flatten(0, 1)[places]
    return states


def _attention_dtype(model: Any) -> torch.dtype:
    """What queries and keys will be in; a mask of another type would be cast in every layer."""
    device = model.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    dtype: torch.dtype = model.dtype
    return dtype
