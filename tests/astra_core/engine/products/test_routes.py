import pytest
import torch

from astra_core.engine.products.rounding import rounding_error
from astra_core.engine.products.routes import fast_route, is_exact, open_route
from astra_core.engine.products.split_product import has_split_product

pytestmark = pytest.mark.routes


def test_other_devices_multiply_as_torch_does():
    assert "plain" == open_route("cuda")


def test_the_fast_route_goes_before_the_split_one_and_plain_is_what_remains():
    split = "split" if has_split_product() else "plain"

    assert ("fast" if is_exact() else split) == open_route("cpu")


def test_the_fast_route_is_as_exact_as_its_trial_says():
    # Of other sizes and numbers than the trial's.
    numbers = torch.Generator().manual_seed(5)
    left, right = torch.randn(2, 320, 320, generator=numbers)
    with fast_route():
        found = left @ right
    error = rounding_error(found, left.double() @ right.double())

    assert is_exact() == (error < 1e-4)


def test_the_switch_is_as_it_was_also_after_an_error():
    before = torch.backends.mkldnn.matmul.fp32_precision
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), fast_route():
        torch.ones(2, 3) @ torch.ones(2, 3)

    assert before == torch.backends.mkldnn.matmul.fp32_precision
