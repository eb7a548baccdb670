import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.engine.attention import NAME, attention, use_own_attention

pytestmark = pytest.mark.routes

MODULE = torch.nn.Module()


def states(heads, *, groups, queries, keys, dtype=torch.float32):
    draw = torch.Generator().manual_seed(2)

    def numbers(*shape):
        return torch.randn(*shape, generator=draw).to(dtype)

    query = numbers(3, heads, queries, 8)
    return query, numbers(3, groups, keys, 8), numbers(3, groups, keys, 8)


def theirs():
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward


def lower(queries, keys, *, kind):
    """Rows of different lengths: the first ``keys - row`` keys are seen."""
    lengths = keys - torch.arange(3)
    seen = (torch.arange(keys) < lengths[:, None])[:, None, None].expand(3, 1, queries, keys)
    if kind is bool:
        return seen
    hidden = torch.zeros(seen.shape)
    return hidden.masked_fill(~seen, torch.finfo(torch.float32).min)


@each_row("queries", [1, 4])
@each_row("groups", [1, 2, 4])
@each_row("scaling", [None, 0.7])
@each_row("kind", [None, bool, float])
def test_attention_is_that_of_transformers(queries, groups, scaling, kind):
    module = torch.nn.Module()
    module.num_key_value_groups = 4 // groups
    module.is_causal = False
    query, key, value = states(4, groups=groups, queries=queries, keys=6)
    mask = None if kind is None else lower(queries, 6, kind=kind)
    # Without a mask one query is the last token, which sees all.
    causal = {"is_causal": False}
    expected, _ = theirs()(module, query, key, value, mask, scaling=scaling, **causal)
    found, weights = attention(module, query, key, value, mask, scaling=scaling, **causal)

    assert weights is None
    assert (3, queries, 4, 8) == found.shape
    torch.testing.assert_close(expected, found, rtol=1e-4, atol=1e-5)


def test_heads_that_share_keys_keep_one_copy_of_them_for_the_gradient():
    own, kept = [tensor.requires_grad_() for tensor in states(4, groups=2, queries=4, keys=6)], []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        attention(MODULE, *own, lower(4, 6, kind=float))

    assert 2 == sum((3, 2, 6, 8) == tensor.shape for tensor in kept)
    assert not [tensor for tensor in kept if tensor.shape == (3, 4, 6, 8)]


def test_dropout_is_not_forgotten():
    module = torch.nn.Module()
    module.num_key_value_groups = 1
    query, key, value = states(2, groups=2, queries=1, keys=6)
    torch.manual_seed(0)
    found, _ = attention(module, query, key, value, None, dropout=0.9, is_causal=False)
    kept, _ = attention(module, query, key, value, None, dropout=0.0, is_causal=False)

    assert not torch.allclose(found, kept)


@each_row("queries", [1, 4])
def test_gradients_are_those_of_transformers(queries):
    module = torch.nn.Module()
    module.num_key_value_groups = 2
    found = []
    for forward in (theirs(), attention):
        own = [tensor.requires_grad_() for tensor in states(4, groups=2, queries=queries, keys=6)]
        forward(module, *own, lower(queries, 6, kind=float))[0].square().sum().backward()
        found.append([tensor.grad for tensor in own])

    for expected, gradient in zip(*found, strict=True):
        torch.testing.assert_close(expected, gradient, rtol=1e-4, atol=1e-5)


def test_bfloat16_stays_bfloat16():
    query, key, value = states(4, groups=2, queries=1, keys=6, dtype=torch.bfloat16)
    found, _ = attention(MODULE, query, key, value, None)

    assert torch.bfloat16 == found.dtype


def test_a_model_is_switched_over_and_says_the_same():
    model, ids = tiny_model("llama grouped"), torch.tensor([[4, 5, 6, 7]])
    expected = model(ids).logits

    assert use_own_attention(model)
    assert NAME == model.config._attn_implementation
    assert use_own_attention(model)
    torch.testing.assert_close(expected, model(ids).logits, rtol=1e-5, atol=1e-5)


def test_a_model_with_attention_of_its_own_kind_stays_as_it_is():
    model = tiny_model("llama grouped")
    model.set_attn_implementation("eager")

    assert not use_own_attention(model)
    assert model.config._attn_implementation == "eager"
