import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.engine.products.norms import FusedNorm, use_fused_norms


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
