import shutil

import pytest
import torch

from astra_core.engine.compilation import compiled, compiled_function
from astra_parts.testing import tiny_language_model

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")


@pytest.mark.wide
@needs_compiler
def test_a_compiled_pass_has_the_gradient_of_the_plain_one():
    model, ids = tiny_language_model(0, is_trained=True).model, torch.tensor([[1, 2, 3, 4]])
    found = []
    for scope in (False, True):
        model.zero_grad()
        with compiled(model) if scope else torch.enable_grad():
            model.base_model(
                input_ids=ids, use_cache=False
            ).last_hidden_state.sin().sum().backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])

    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert "forward" not in vars(model.base_model)


@pytest.mark.wide
@needs_compiler
def test_a_compiled_function_serves_every_shape():
    double = compiled_function(lambda rows: rows * 2.0, is_static=False)
    for count in (2, 3, 5):
        torch.testing.assert_close(torch.full((count,), 2.0), double(torch.ones(count)))
