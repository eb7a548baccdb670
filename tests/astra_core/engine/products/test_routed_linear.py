import pytest
import torch
from each_row import each_row
from transformers.pytorch_utils import Conv1D

from astra_core.engine.products.routed_linear import RoutedProduct, routed_linears
from astra_core.engine.products.routes import is_exact, open_route
from astra_parts.testing import tiny_language_model

pytestmark = pytest.mark.routes

# Where the route rounds to bf16, a sum over 24 products is off by up to this share.
ROUTE_ERROR = 1e-5 if is_exact() else 0.03


def gradients(layer, rows):
    layer.zero_grad()
    rows = rows.clone().requires_grad_()
    found = layer(rows)
    (found**2).sum().backward()
    return [found.detach(), rows.grad, *(weight.grad for weight in layer.parameters())]


@each_row("layer", [torch.nn.Linear(24, 5), torch.nn.Linear(24, 5, bias=False), Conv1D(5, 24)])
def test_routed_linears_give_the_products_and_gradients_of_plain_ones(layer):
    torch.manual_seed(0)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight)
    rows = torch.randn(3, 4, 24)
    expected = gradients(layer, rows)
    # Also where the processor has no exact route, the products are put together the same way.
    with routed_linears(torch.nn.Sequential(layer), route="fast"):
        found = gradients(layer, rows)

    for plain, routed in zip(expected, found, strict=True):
        assert float((plain - routed).abs().max()) <= ROUTE_ERROR * float(plain.abs().max())


def test_routed_product_computes_only_the_gradients_that_are_needed():
    rows = torch.randn(3, 4)
    matrix = torch.randn(4, 2, requires_grad=True)
    RoutedProduct.apply(rows, matrix, None).sum().backward()

    assert rows.grad is None
    assert matrix.grad.shape == (4, 2)


def test_routed_linears_are_as_exact_as_fp32_on_any_processor():
    model = tiny_language_model(1, kind="gpt2", is_trained=True).model
    ids = torch.arange(12)[None] % model.config.vocab_size
    expected = model(input_ids=ids).logits
    with routed_linears(model, route=open_route("cpu")):
        found = model(input_ids=ids).logits

    torch.testing.assert_close(expected, found, rtol=0.0, atol=1e-4)


def test_plain_linears_stay_as_they_are():
    model = tiny_language_model(1, kind="gpt2").model
    with routed_linears(model, route="plain"):
        assert not [module for module in model.modules() if "forward" in vars(module)]


def test_routed_linears_are_plain_again_afterwards_and_the_switch_as_it_was():
    model = tiny_language_model(1, kind="gpt2").model
    before = torch.backends.mkldnn.matmul.fp32_precision
    with pytest.raises(IndexError), routed_linears(model, route="fast"):
        model(input_ids=torch.tensor([[model.config.vocab_size]]))

    assert not [module for module in model.modules() if "forward" in vars(module)]
    assert before == torch.backends.mkldnn.matmul.fp32_precision


def test_routed_linears_leave_adapters_around_a_layer_at_work():
    class Doubled(torch.nn.Linear):
        def forward(self, rows):
            return 2.0 * super().forward(rows)

    layer = Doubled(4, 3)
    rows = torch.randn(2, 4)
    expected = layer(rows)
    with routed_linears(torch.nn.Sequential(layer), route="fast"):
        assert torch.equal(expected, layer(rows))
