import pytest
from prefect.states import Failed

from astra_core.errors import DataError
from flows.promotion import promote
from tasks.tracking.errors import StoreError, TrackingError


@pytest.mark.parametrize(
    ("error", "is_tried_again"),
    [(StoreError("away"), True), (TrackingError("no candidate"), False), (DataError("x"), False)],
)
def test_only_a_store_that_is_away_is_asked_again(error, is_tried_again):
    assert is_tried_again is promote.retry_condition_fn(promote, None, Failed(data=error))


def test_the_retries_stand_around_the_whole():
    assert promote.retries >= 1
