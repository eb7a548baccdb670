import copy

import torch
import transformers
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.engine.products.fused_layers import (
    FusedNorm,
    _GatedProduct,
    use_fused_gelu,
    use_fused_norms,
    use_gated_products,
)


# Gemma adds one to the weight, and GPT-2 subtracts the mean.
@each_row(("name", "expected"), [("llama grouped", 5), ("qwen3", 9), ("gemma3", 0), ("gpt2", 0)])
def test_norms_that_compute_the_same_are_replaced(name, expected):
    model, ids = tiny_model(name), torch.tensor([[1, 2, 3, 4]])
    before, names = model(ids).logits, list(model.state_dict())

    assert expected == use_fused_norms(model)
    assert expected == sum(isinstance(module, FusedNorm) for module in model.modules())
    assert names == list(model.state_dict())
    torch.testing.assert_close(before, model(ids).logits)
    assert 0 == use_fused_norms(model)


SIZES = {"vocab_size": 11, "bos_token_id": None, "eos_token_id": 0}


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **SIZES)).eval()


def test_use_fused_gelu_keeps_logits_gradients_and_weights():
    plain, fused = gpt2(), gpt2()
    ids = torch.arange(10)[None]

    assert use_fused_gelu(fused) == 2
    assert list(plain.state_dict()) == list(fused.state_dict())
    logits = [model(input_ids=ids).logits for model in (plain, fused)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0.0, atol=1e-6)
    for own in logits:
        own.log_softmax(dim=-1)[..., 3].sum().backward()
    for first, second in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-5)


def test_use_fused_gelu_replaces_every_one_once():
    model = gpt2()
    use_fused_gelu(model)

    assert not [
        m for m in model.modules() if isinstance(m, transformers.activations.NewGELUActivation)
    ]
    assert use_fused_gelu(model) == 0


def test_use_fused_gelu_leaves_other_activations_alone():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_attention_heads=2, **sizes, **SIZES)
    )

    assert use_fused_gelu(model) == 0


# Gemma gates with a gelu, and GPT-2 has no gate.
@each_row(("name", "expected"), [("llama grouped", 2), ("qwen3", 2), ("gemma3", 0), ("gpt2", 0)])
def test_a_gated_product_keeps_less_and_gives_the_same(name, expected):
    model, ids = tiny_model(name), torch.tensor([[1, 2, 3, 4]])
    before = logits_and_gradients(model, ids)

    assert expected == use_gated_products(model)
    assert 0 == use_gated_products(model)
    after = logits_and_gradients(copy.deepcopy(model), ids)
    assert torch.equal(before[0], after[0])
    assert (expected == 0) == (before[2] == after[2])
    assert after[2] <= before[2]
    for own, other in zip(before[1], after[1], strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_a_gate_with_a_limit_is_left_alone():
    model = tiny_model("llama grouped")
    kind = type(model.base_model.layers[0].mlp)

    class Limited(kind):
        def forward(self, states):
            gate = self.gate_proj(states).clamp(max=7.0)
            return self.down_proj(self.act_fn(gate) * self.up_proj(states))

    model.base_model.layers[0].mlp.__class__ = Limited

    assert 1 == use_gated_products(model)
    assert "forward" not in vars(model.base_model.layers[0].mlp)


def logits_and_gradients(model, ids):
    """Also the number of tensors that are kept for the gradient."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        logits = model(ids).logits
    return logits, torch.autograd.grad(logits.square().sum(), [*model.parameters()]), len(kept)


def test_the_gradient_of_a_gated_product_has_a_gradient():
    states = torch.linspace(-2.0, 2.0, 6, dtype=torch.float64).view(2, 3).requires_grad_()

    assert torch.autograd.gradgradcheck(_GatedProduct.apply, (states, states.detach() + 1.0))
