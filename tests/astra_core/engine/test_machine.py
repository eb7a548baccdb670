import pytest
import torch

from astra_core.engine.machine import Machine
from astra_core.engine.processor import processor_class
from astra_core.engine.products.packed_linear import has_packed_product
from astra_core.engine.products.routes import open_route

pytestmark = pytest.mark.routes


def test_this_machine_is_what_the_trials_say():
    here = Machine.here(keeps_freed_memory=True, num_threads=3)
    types = (torch.float32, torch.bfloat16)

    assert open_route("cpu") == here.route
    assert {dtype for dtype in types if has_packed_product(dtype)} == here.packs
    assert (True, 3) == (here.keeps_freed_memory, here.num_threads)
    assert here.describe().startswith(f"cpu ({processor_class()}): products fp32")
    assert (torch.float32 in here.packs) == here.describe().endswith(", weights packed to talk")


def test_another_device_has_the_plain_route_and_packs_nothing():
    other = Machine.here("cuda")

    assert ("plain", frozenset()) == (other.route, other.packs)
    assert "cuda: products fp32" == other.describe()
