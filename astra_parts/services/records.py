"""Records, from each of which a training service learns one sequence of tokens.

A record is shifted by one: place t reads token t and is about token t+1. A service only adds losses
up and does not know their divisor, so the advantages include it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from astra_parts.algorithms.functional import Aggregation, aggregation_weights
from astra_parts.algorithms.policy_batch import PolicyBatch


@dataclass(frozen=True, slots=True)
class Record:
    """One sequence, all columns of one length.

    Attributes:
        inputs: Token ids without the last.
        targets: Token ids without the first.
        logprobs: Of the targets under the policy that sampled them, nats; 0 where none is trained.
        advantages: Of the targets; 0 where none is trained.
    """

    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    mask: tuple[float, ...]


def record_of(
    tokens: Sequence[int],
    mask: Sequence[bool | int],
    *,
    logprobs: Sequence[float],
    advantages: Sequence[float],
) -> Record | None:
    """The record of a sequence; None if no advantage of it is other than 0.

    ``advantages``: one for all trained tokens, or one for each trained token, in their order.
    """
    own = list(advantages) * sum(map(bool, mask)) if len(advantages) == 1 else list(advantages)
    stream = iter(own)
    spread = [next(stream) if is_trained else 0.0 for is_trained in mask]
    if not any(spread[1:]):
        return None
    return Record(
        tuple(tokens[:-1]),
        tuple(tokens[1:]),
        tuple(logprobs[1:]),
        tuple(spread[1:]),
        tuple(float(bool(each)) for each in mask[1:]),
    )


def records_of(batch: PolicyBatch, *, aggregation: Aggregation, weight: float) -> list[Record]:
    """The records of a batch; probes whose advantages are all 0 change nothing and are left out."""
    shares = aggregation_weights(batch.mask, mode=aggregation) / weight
    advantages = (batch.advantages * shares).tolist()
    columns = (
        batch.rows.sequences(),
        batch.rows.continuation_mask.sum(-1).tolist(),
        batch.mask.tolist(),
        batch.behaviour_logprobs.tolist(),
        advantages,
    )
    found = []
    for tokens, length, mask, logprobs, own in zip(*columns, strict=True):
        before = len(tokens) - length
        trained = [False] * before + mask[:length]
        record = record_of(
            tokens,
            trained,
            logprobs=[0.0] * before + logprobs[:length],
            advantages=[a for a, is_trained in zip(own, mask, strict=True) if is_trained] or [0.0],
        )
        found.append(record)
    return [record for record in found if record is not None]
