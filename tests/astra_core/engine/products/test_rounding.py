import math

import pytest
import torch

from astra_core.engine.products.rounding import rounding_error


def test_an_error_is_a_share_of_the_largest_entry():
    exact = torch.tensor([[1.0, -8.0], [2.0, 4.0]], dtype=torch.float64)

    # 0.5 off at the entry of 2, and the largest is 8.
    assert rounding_error(torch.tensor([[1.0, -8.0], [1.5, 4.25]]), exact) == pytest.approx(1 / 16)
    assert 0.0 == rounding_error(exact, exact)


def test_the_error_of_a_nan_passes_no_trial():
    error = rounding_error(torch.tensor([1.0, math.nan]), torch.ones(2, dtype=torch.float64))

    assert not error < math.inf
