import pytest

from astra_core.errors import DataError
from astra_parts.executors.scaled_numbers import ScaledNumbers


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
