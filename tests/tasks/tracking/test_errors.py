import pickle

from each_row import each_row

from astra_core.errors import AstraError
from tasks.tracking.errors import DamagedStoreError, StoreError, TrackingError


@each_row("kind", [TrackingError, StoreError, DamagedStoreError])
def test_an_error_is_a_mistake_of_a_person_that_prefect_can_pickle(kind):
    again = pickle.loads(pickle.dumps(kind("got nothing")))  # noqa: S301 - our own bytes

    assert isinstance(again, TrackingError)
    assert isinstance(again, AstraError)
    assert "got nothing" == str(again)


def test_only_a_store_that_does_not_answer_may_answer_later():
    assert issubclass(StoreError, ConnectionError)
    assert not issubclass(DamagedStoreError, ConnectionError)
