import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.executor import Executor
from astra_parts.testing import check_executor
from astra_parts.testing.contracts.executor import ScaledNumbers


class _Backwards(Executor):
    is_here = True

    def results(self, work, shards, *, weights, advance):
        prepared = work.prepare({})
        if weights is not None:
            work.renew(prepared, weights.data)
        found = [work.do(prepared, shard) for shard in reversed(shards)]
        for _ in shards:
            advance(1)
        return found


class _Silent(_Backwards):
    def results(self, work, shards, *, weights, advance):
        return super().results(work, shards[::-1], weights=weights, advance=lambda _: advance)


class _Forgetful(_Backwards):
    def results(self, work, shards, *, weights, advance):
        return super().results(work, shards[::-1], weights=weights and None, advance=advance)


class _Wasteful(_Backwards):
    is_here = False

    def results(self, work, shards, *, weights, advance):
        work.prepare({}), work.prepare({})
        return super().results(work, shards[::-1], weights=weights, advance=advance)


class _Calm(_Backwards):
    def results(self, work, shards, *, weights, advance):
        good = [shard for shard in shards[::-1] if shard >= 0]
        return super().results(work, good, weights=weights, advance=advance)


@each_row(
    ("plugin", "broken"),
    [
        (_Backwards, "one result per shard, in order"),
        (_Silent, "every shard that is done is told once"),
        (_Forgetful, "weights are those of now"),
        (_Wasteful, "a work is prepared once by each worker"),
        (_Calm, "an error of the work is raised"),
    ],
)
def test_a_broken_promise_is_named(plugin, broken):
    with pytest.raises(AssertionError, match=f"broken promise: {broken}"):
        check_executor(plugin)


def test_numbers_are_multiplied_by_the_present_weight(tmp_path):
    work = ScaledNumbers(tmp_path)
    prepared = work.prepare({})
    assert 4.0 == work.do(prepared, 4)

    work.renew(prepared, b"2.5")
    assert 10.0 == work.do(prepared, 4)
    assert 1 == len([*tmp_path.iterdir()])


def test_a_negative_number_is_refused(tmp_path):
    work = ScaledNumbers(tmp_path)

    with pytest.raises(DataError, match="must not be negative, got -1"):
        work.do(work.prepare({}), -1)
