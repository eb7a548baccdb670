"""A step asks the host for nothing, and a GPU that replays it draws what the CPU draws."""

import pytest
import torch
from each_row import each_row
from other_device import NAME, OtherTensor, other_device

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.reading import CachedReading
from astra_core.engine.steps.step import Rows, quick_kernels
from astra_core.engine.steps.stepper import Stepper
from astra_parts.testing import tiny_language_model

CONTEXTS = [[(7 * row + 3 * at) % 19 + 1 for at in range(3 + row % 5)] for row in range(7)]
SAMPLING = [
    {},
    {"top_p": 0.9, "top_k": 5, "repetition_penalty": 1.2},
    {"min_p": 0.05, "temperature": 0.7},
]
# What asks a device for numbers.
QUESTIONS = ("tolist", "item", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy")


def begun(device, options):
    generation = GenerationConfiguration(max_new_tokens=6, min_new_tokens=2, **options)
    model = tiny_language_model(0).model.to(device)
    reading = CachedReading(model, CONTEXTS, [0] * len(CONTEXTS), room=0)
    step = Stepper(model, captures=device == "cuda").step(
        reading.values, generation, num_rows=8, num_slots=24, rules=((0,), (3,), 5)
    )
    numbers = torch.Generator().manual_seed(0)
    uniforms = torch.rand(len(CONTEXTS), 6, dtype=torch.float64, generator=numbers)
    places = list(range(len(CONTEXTS)))
    step.begin(places, Rows(CONTEXTS, reading.values, places, uniforms))
    return step


@each_row("options", SAMPLING)
@torch.no_grad()
def test_a_step_copies_nothing_to_the_host(options, monkeypatch):
    asked = []
    with other_device():
        step = begun(NAME, options)
        step.advance()
        for name in QUESTIONS:
            monkeypatch.setattr(
                OtherTensor, name, lambda *_, of=name: asked.append(of), raising=False
            )
        step.advance()
        assert [] == asked
        step.over()
    assert asked


def test_the_settings_of_kernels_are_as_before():
    was = torch.are_deterministic_algorithms_enabled()
    with quick_kernels():
        assert not torch.are_deterministic_algorithms_enabled()
    assert was == torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", SAMPLING)
@torch.no_grad()
def test_a_replayed_step_draws_what_the_cpu_draws(options):
    found = []
    for device in ("cpu", "cuda"):
        with quick_kernels():
            step = begun(device, options)
            while not all(step.over()):
                step.advance()
            found.append(step.drawn_rows(range(len(CONTEXTS))))

    for here, there in zip(*found, strict=True):
        assert here.token_ids == there.token_ids
        assert here.logprobs == pytest.approx(there.logprobs, abs=1e-4)
