import pytest

from astra_core.errors import TrainingError
from astra_parts.services.records import record_of
from astra_parts.services.service_update import policy_batches, update_at
from astra_parts.services.training_service import AdamStep, ServiceLoss, Updated

ADAM = AdamStep(0.25, 0.9, 0.95, 1e-8, 0.0)
COPY = ServiceLoss("cross_entropy", {})


class Still:
    """A service whose log-probabilities are all one number; keeps what it was sent."""

    def update(self, batches, loss, adam):
        assert (COPY, ADAM) == (loss, adam)
        self.sent = [list(batch) for batch in batches]
        records = [record for batch in self.sent for record in batch]
        rows = tuple(tuple(-2.0 for _ in record.targets) for record in records)
        return Updated(rows, {"its.own/grad_norm": 3.0, "its.own/other": 4.0})


def test_an_update_has_the_loss_of_all_its_records_and_the_figures_of_the_service():
    record = record_of([1, 2, 3], [0, 1, 1], logprobs=[0.0, -1.0, -1.0], advantages=[0.5])
    service = Still()
    found = update_at(service, iter([[record], [record, record]]), loss=COPY, adam=ADAM)

    assert [[record], [record, record]] == service.sent
    # Two tokens of each of three records, -2 nats weighed by a half.
    assert 6.0 == pytest.approx(found["loss"])
    assert (3.0, 0.25) == (found["grad_norm"], found["lr"])
    assert {"remote_grad_norm": 3.0, "remote_other": 4.0} == found["metrics"]


def test_batches_of_something_else_than_probes_are_told():
    with pytest.raises(TrainingError, match="must have batches of probes"):
        policy_batches(["a pair"])
