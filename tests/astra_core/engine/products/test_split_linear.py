"""Layers on split products compute what they did, gradients too, and only where it pays."""

import weakref
from contextlib import nullcontext

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model
from transformers.pytorch_utils import Conv1D

from astra_core.engine.plan import recompute
from astra_core.engine.products import split_linear, split_product
from astra_core.engine.products.routed_linear import routed_linears
from astra_core.engine.products.split_linear import SharedInput, SplitLinear
from astra_core.engine.products.split_product import MIN_ROWS, Halves, is_worth_splitting

pytestmark = pytest.mark.routes

WIDTH, WIDER = 512, 640
needs_library = pytest.mark.skipif(
    split_product._library_product() is None, reason="torch was built without MKL's product of bf16"
)


def layer_of(kind, *, has_bias=True):
    torch.manual_seed(0)
    if kind is Conv1D:
        return Conv1D(WIDER, WIDTH)
    return torch.nn.Linear(WIDTH, WIDER, bias=has_bias)


def outcome(layer, rows):
    layer.zero_grad()
    rows = rows.clone().requires_grad_()
    found = layer(rows)
    (found * torch.linspace(-1.0, 1.0, found.numel()).view(found.shape)).sum().backward()
    return [found.detach(), rows.grad, *(weight.grad for weight in layer.parameters())]


@needs_library
@each_row("kind", [torch.nn.Linear, Conv1D])
@each_row("has_bias", [True, False])
def test_split_layers_give_the_products_and_gradients_of_plain_ones(kind, has_bias):
    layer = layer_of(kind, has_bias=has_bias)
    rows = torch.randn(2, MIN_ROWS, WIDTH)
    expected = outcome(layer, rows)
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        assert isinstance(vars(layer)["forward"], SplitLinear)
        found = outcome(layer, rows)

    assert "forward" not in vars(layer)
    for plain, split in zip(expected, found, strict=True):
        assert not torch.equal(plain, split) or plain.dim() == 1
        assert float((plain - split).abs().max()) < 2e-5 * float(plain.abs().max())


def test_few_rows_are_multiplied_as_ever():
    layer, rows = layer_of(torch.nn.Linear), torch.randn(MIN_ROWS - 1, WIDTH)
    expected = outcome(layer, rows)
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        found = outcome(layer, rows)

    assert all(torch.equal(plain, same) for plain, same in zip(expected, found, strict=True))


@each_row(
    "layer",
    [
        torch.nn.Linear(WIDTH, WIDTH - 1),
        torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64),
        torch.nn.Linear(WIDTH, WIDTH, device="meta"),
    ],
)
def test_small_layers_and_other_numbers_stay_as_they_are(layer):
    assert not is_worth_splitting(layer.weight)
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        assert "forward" not in vars(layer)


@needs_library
def test_weights_are_split_once_for_all_batches(monkeypatch):
    split = []
    of = Halves.of

    def noted(numbers):
        split.append(tuple(numbers.shape))
        return of(numbers)

    monkeypatch.setattr(split_linear.Halves, "of", noted)
    layer, rows = layer_of(torch.nn.Linear), torch.randn(MIN_ROWS, WIDTH)
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        for _ in range(3):
            layer(rows).sum().backward()

    assert 1 == split.count((WIDTH, WIDER))
    # The input is the same one every time.
    assert 1 == split.count((MIN_ROWS, WIDTH))
    assert 3 == split.count((MIN_ROWS, WIDER))


@needs_library
def test_layers_with_one_input_share_its_halves_and_others_do_not(monkeypatch):
    split = []
    of = Halves.of
    monkeypatch.setattr(split_linear.Halves, "of", lambda x: split.append(x.data_ptr()) or of(x))
    query, key, last = layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
    given = torch.randn(MIN_ROWS, WIDTH, requires_grad=True)

    def passed():
        mixed = query(given) * key(given)
        found = last(mixed)
        gradients = torch.autograd.grad(found.square().sum(), [given, *layers.parameters()])
        return [found.detach(), *gradients], mixed

    expected, _ = passed()
    with routed_linears(layers, route="split"):
        actual, mixed = passed()

    # Its weights, and then every input once: queries and keys are made of the same.
    assert 1 == split.count(given.data_ptr())
    assert 1 == split.count(mixed.data_ptr())
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=3e-5 * float(one.abs().max()))


@needs_library
def test_a_read_in_inference_mode_leaves_training_as_it_was():
    layer, rows = layer_of(torch.nn.Linear), torch.randn(MIN_ROWS, WIDTH)
    expected = layer(rows).detach()
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        with torch.inference_mode():
            found = layer(rows + 0.0).clone()
        layer(rows).sum().backward()

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        layer.weight.grad, rows.sum(0).expand_as(layer.weight), rtol=0, atol=1e-3
    )


def test_halves_are_forgotten_with_their_input():
    shared, rows = SharedInput(), torch.randn(3, WIDTH)
    halves = weakref.ref(shared.halves(rows).high)

    assert halves() is not None
    del rows
    assert halves() is None


def test_an_input_is_split_again_once_it_is_another_or_was_written_to():
    shared, rows = SharedInput(), torch.randn(2, 3, WIDTH)
    first = shared.halves(rows)

    assert first is shared.halves(rows)
    assert (6, WIDTH) == first.high.shape
    with torch.no_grad():
        rows += 1.0
    torch.testing.assert_close(
        shared.halves(rows).high.float().view_as(rows), rows, rtol=0.01, atol=0
    )
    assert first is not shared.halves(rows)
    assert shared.halves(rows) is not shared.halves(rows.clone())


def test_frozen_layers_stay_as_they_are():
    layer = layer_of(torch.nn.Linear).requires_grad_(requires_grad=False)
    with routed_linears(torch.nn.Sequential(layer), route="split"):
        assert "forward" not in vars(layer)


@needs_library
@pytest.mark.parametrize(("is_trained", "num_kept"), [(True, 4), (False, 2)])
def test_no_more_than_needed_is_kept_for_the_gradient(is_trained, num_kept):
    layer = layer_of(torch.nn.Linear).requires_grad_(requires_grad=is_trained)
    rows = torch.randn(MIN_ROWS, WIDTH, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        found = SplitLinear(layer, SharedInput())(rows)
    found.sum().backward()

    # The halves of the weights and, for their gradient, those of the input.
    assert num_kept == len(kept)
    torch.testing.assert_close(layer.weight.sum(dim=0).expand(MIN_ROWS, -1), rows.grad)
    assert is_trained == (layer.weight.grad is not None)


@needs_library
def test_gradients_lie_in_memory_as_their_weights_do():
    for kind in (torch.nn.Linear, Conv1D):
        layer = layer_of(kind)
        SplitLinear(layer, SharedInput())(torch.randn(MIN_ROWS, WIDTH)).sum().backward()

        assert layer.weight.grad.is_contiguous()


@needs_library
def test_recomputed_activations_give_the_same_gradients_of_split_layers():
    model = tiny_model("gpt2", n_embd=WIDTH, n_layer=1, n_positions=MIN_ROWS)
    ids = torch.arange(MIN_ROWS)[None] % 20
    found = []
    for scope in (nullcontext(), recompute(model)):
        model.zero_grad()
        with scope, routed_linears(model, route="split"):
            assert [m for m in model.modules() if isinstance(vars(m).get("forward"), SplitLinear)]
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))

    assert torch.equal(*found)


@needs_library
def test_second_derivatives_are_refused():
    layer, rows = layer_of(torch.nn.Linear), torch.randn(MIN_ROWS, WIDTH, requires_grad=True)
    found = SplitLinear(layer, SharedInput())(rows)
    (gradient,) = torch.autograd.grad((found**2).sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
