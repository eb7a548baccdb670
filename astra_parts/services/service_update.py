"""One optimiser update at a service: the records of its batches, and what came of them."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from astra_core.errors import TrainingError
from astra_parts.algorithms.functional import Aggregation
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.services.records import Record, records_of
from astra_parts.services.service_losses import loss_on_record
from astra_parts.services.training_service import AdamStep, ServiceLoss, TrainingService


def update_at(
    service: TrainingService,
    batches: Iterable[Sequence[Record]],
    *,
    loss: ServiceLoss,
    adam: AdamStep,
) -> dict[str, Any]:
    """The fields of an ``Update`` but its tokens, as JSON.

    ``batches``: of records; each is asked for when the one before is on its way.
    """
    start, records = time.perf_counter(), list[Record]()

    def passes() -> Iterator[Sequence[Record]]:
        for batch in batches:
            records.extend(batch)
            yield batch

    updated = service.update(passes(), loss, adam)
    pairs = zip(records, updated.logprobs, strict=True)
    norms = [value for name, value in updated.figures.items() if name.endswith("grad_norm")]
    return {
        "loss": sum(loss_on_record(loss, record, now) for record, now in pairs),
        "grad_norm": norms[0] if norms else 0.0,
        "lr": adam.lr,
        "is_skipped": False,
        "metrics": {f"remote_{name.split('/')[-1]}": v for name, v in updated.figures.items()},
        "train_s": time.perf_counter() - start,
    }


def window_records(window: Sequence[object], *, aggregation: Aggregation) -> list[list[Record]]:
    """The records of the micro-batches that one update is of; empty ones are left out."""
    batches = policy_batches(window)
    weight = sum(batch.weight for batch in batches) or 1.0
    found = [records_of(batch, aggregation=aggregation, weight=weight) for batch in batches]
    return [records for records in found if records]


def policy_batches(batches: Sequence[object]) -> list[PolicyBatch]:
    """The batches, all of which are of probes. Raises TrainingError if one is not."""
    found = [batch for batch in batches if isinstance(batch, PolicyBatch)]
    if len(found) < len(batches):
        msg = "trainer 'remote' must have batches of probes, got others; name another algorithm"
        raise TrainingError(msg)
    return found
