import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.engine.steps.trial import takes_steps


# Windows and states of recurrent layers are not in a table of slots.
@each_row(
    ("name", "expected"),
    [
        *[(name, True) for name in ("gpt2", "llama grouped", "qwen3", "phi", "cohere")],
        *[(name, False) for name in ("mistral", "gemma3", "bloom", "mamba")],
    ],
)
def test_a_model_that_draws_the_same_takes_steps(name, expected):
    assert expected == takes_steps(tiny_model(name))


def test_half_precision_takes_what_full_precision_takes():
    for dtype in (torch.bfloat16, torch.float16):
        assert takes_steps(tiny_model("llama grouped").to(dtype))
