import numpy as np
import pytest

from astra_core.errors import DataError
from tasks.promotion.paired import Paired, t_test


def test_the_test_is_students_with_one_imagined_pair_each_way():
    found = t_test([0.5, 0.0, 0.5, 0.0])

    # 0.5, 0, 0.5, 0, 1, -1: mean 1/6, sum of squares 2.5 - 6/36.
    assert found.centre == pytest.approx(1 / 6)
    assert found.error == pytest.approx(np.sqrt((2.5 - 1 / 6) / 5 / 6))
    assert found.freedom == 5


def test_the_probability_is_known_and_falls_as_the_bound_does():
    # Student's t of 10 degrees of freedom exceeds 1.812 once in twenty times.
    found = Paired(1.812, 1.0, 10)

    assert found.p_value() == pytest.approx(0.05, abs=1e-4)
    assert found.p_value(-1.0) < found.p_value() < found.p_value(1.0)
    assert Paired(0.0, 0.0, 3).p_value() == 1.0
    assert Paired(0.1, 0.0, 3).p_value() == 0.0


def test_prompts_of_equal_outcome_still_have_an_error():
    assert t_test([0.0] * 30).error > 0.0
    assert t_test([0.5] * 30, imagined=False).error == 0.0
    assert not t_test([0.5] * 3).p_value() < 0.05


def test_one_difference_is_no_sample():
    with pytest.raises(DataError, match="at least two differences, got 1"):
        t_test([0.5])
