import pickle

import pytest
from shard_sums import Sums

from astra_core.errors import DataError, StaleWorkerError
from astra_core.executor import Weights
from astra_parts.executors.bench import Bench, Held, Task, portable

FIRST, SECOND = Weights("first", b"1"), Weights("second", b"2")


def test_a_worker_with_another_version_refuses(tmp_path):
    bench, work = Bench(), Sums(tmp_path)
    assert 11.0 == bench.do(Task.of(work, FIRST, (10, "")), work, FIRST)[0]

    with pytest.raises(StaleWorkerError, match="must have the weights second, got first"):
        bench.do(Task.of(work, SECOND, (10, "")))
    with pytest.raises(StaleWorkerError, match="must have the weights of the folder, got first"):
        bench.do(Task.of(work, None, (10, "")))
    assert 12.0 == bench.do(Task.of(work, SECOND, (10, "")), None, SECOND)[0]


def test_a_worker_without_the_work_refuses(tmp_path):
    with pytest.raises(StaleWorkerError, match="must be given its work"):
        Bench().do(Task.of(Sums(tmp_path), None, (10, "")))


def test_half_loaded_weights_are_of_no_version(tmp_path):
    bench, work = Bench(), Sums(tmp_path)
    bench.do(Task.of(work, FIRST, (1, "")), work, FIRST)
    with pytest.raises(ValueError, match="could not convert"):
        bench.do(Task.of(work, SECOND, (1, "")), None, Weights("second", b"damaged"))

    with pytest.raises(StaleWorkerError, match="got none"):
        bench.do(Task.of(work, SECOND, (1, "")))


def test_works_of_another_holder_take_the_place_of_the_first(tmp_path):
    bench, held = Bench(), Held()
    one, other = Sums(tmp_path), Sums(tmp_path, "other")
    for work in (one, one, other, one):
        sent, _ = held.missing(work, None)
        assert bench.do(Task.of(work, None, (3, "")), sent)[0] == 3.0

    assert {"other", "sums"} >= {bench.holder} == {"sums"}


def test_work_without_weights_after_others_is_prepared_again(tmp_path):
    bench, held, work = Bench(), Held(), Sums(tmp_path)
    found = []
    for weights in (FIRST, FIRST, None, None):
        sent = held.missing(work, weights)
        found.append(bench.do(Task.of(work, weights, (3, "")), *sent)[0])

    assert [4.0, 4.0, 3.0, 3.0] == found


def test_only_what_a_worker_lacks_is_sent(tmp_path):
    held, work = Held(), Sums(tmp_path)

    assert (work, FIRST) == held.missing(work, FIRST)
    assert (None, None) == held.missing(work, FIRST)
    assert (None, SECOND) == held.missing(work, SECOND)


def test_an_error_is_sent_as_it_is_with_its_trace():
    def sent(error):
        with pytest.raises(type(error)) as found:
            raise error
        return pickle.loads(pickle.dumps(portable(found.value)))  # noqa: S301 - our own

    ours = sent(DataError("a file must be there, got none; make it"))
    assert isinstance(ours, DataError)
    assert "a file must be there" in str(ours)
    assert "test_bench.py" in ours.__notes__[0]
    theirs = sent(ValueError("you are all bad"))
    assert isinstance(theirs, RuntimeError)
    assert "bad" not in str(theirs)
    assert "ValueError" in str(theirs)
