import shutil
from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.engine import compilation
from astra_core.engine.cache.reading import CachedReading
from astra_core.engine.compilation import compiles
from astra_core.engine.logprobs import token_logprobs
from astra_core.engine.steps.step import Rows
from astra_core.engine.steps.stepper import Stepper
from astra_core.models.rows import pad_rows
from astra_parts.testing import tiny_language_model

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")


@pytest.fixture
def programs():
    """How many programs torch has compiled, counted from here."""
    torch._dynamo.reset()
    counted = torch._dynamo.utils.counters["stats"]
    counted.clear()
    compilation._compiled_forward.cache_clear()
    return lambda: counted["unique_graphs"]


@pytest.mark.wide
@needs_compiler
@pytest.mark.parametrize("recomputes", [False, True])
def test_all_layers_share_one_program_and_the_gradient_of_plain_ones(programs, recomputes):
    attacker = tiny_language_model(0, layers=3, is_trained=True)
    model, contexts = attacker.model, [[1, 2, 3], [4, 5]]
    # Rows of other lengths are filled up to the same shape.
    for count, rows in enumerate(([[6, 7], [8]], [[6, 7, 8], [9]])):
        given, found = pad_rows(contexts, rows, pad_id=0), []
        for is_compiled in (False, True):
            model.zero_grad()
            plan = attacker.plan.learning(
                precision="fp32", recomputes=recomputes, compiles=is_compiled
            )
            machine = replace(plan.machine, fixes_shapes=True)
            with_rows = replace(plan, machine=machine)
            talking = replace(attacker.plan, machine=machine)
            with with_rows.learns(model):
                # As a loss asks for it: with the plan of talking.
                token_logprobs(model, given, plan=talking).sum().backward()
            found.append([p.grad for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        assert 1 == programs(), count
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.wide
@needs_compiler
@torch.no_grad()
def test_a_compiled_step_draws_what_a_plain_one_draws():
    model, contexts = tiny_language_model(0, layers=2).model, [[1, 2, 3], [4, 5]]
    generation = GenerationConfiguration(max_new_tokens=3, min_new_tokens=3)
    found = []
    for is_compiled in (False, True):
        reading = CachedReading(model, contexts, [0, 0], room=0)
        step = Stepper(model, captures=False, compiles=is_compiled).step(
            reading.values, generation, num_rows=2, num_slots=6, rules=((0,), (), None)
        )
        uniforms = torch.full((2, 3), 0.4, dtype=torch.float64)
        step.begin([0, 1], Rows(contexts, reading.values, [0, 1], uniforms))
        for _ in range(3):
            step.advance()
        found.append(step.drawn_rows([0, 1]))

    for here, there in zip(*found, strict=True):
        assert here.token_ids == there.token_ids
        assert here.logprobs == pytest.approx(there.logprobs, abs=1e-5)


@each_row(
    ("asked", "device", "weights", "expected"),
    [
        ("auto", "cpu", 10**9, False),
        ("auto", "cuda", 10**6, False),
        (True, "cpu", 1, True),
        (False, "cuda", 10**9, False),
    ],
)
def test_updates_are_compiled_where_it_is_asked_for_or_saves_time(asked, device, weights, expected):
    assert expected == compiles(asked, device, num_weights=weights)
