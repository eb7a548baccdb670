"""A step of fixed shape draws what the plain way draws, and asks the host for nothing."""

from dataclasses import replace

import pytest
import torch
from each_row import each_row
from other_device import OtherTensor, other_device

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.reading import CachedReading
from astra_core.engine.steps.step import Rows, quick_kernels
from astra_core.engine.steps.stepper import Stepper
from astra_core.seeding import derive_key
from astra_core.testing import tiny_language_model

CONTEXTS = [tuple((7 * row + 3 * at) % 19 + 1 for at in range(3 + row % 5)) for row in range(7)]
KEYS = [[derive_key(0, row, number) for number in range(row % 4)] for row in range(7)]
SUFFIXES = [row % 3 for row in range(7)]
PLAIN = {"temperature": 0.7, "top_p": 0.8}
SAMPLING = [
    {},
    {"min_new_tokens": 4, "repetition_penalty": 1.3, "top_k": 5},
    {"min_p": 0.05, **PLAIN},
]


def stepping(model):
    model.plan = replace(
        model.plan, machine=replace(model.plan.machine, fixes_shapes=True), steps=True
    )
    return model


def drawn(model, options, **settings):
    generation = GenerationConfiguration(max_new_tokens=9, **options)
    with model.remembering(1 << 20, is_bf16=settings.pop("is_bf16", False)):
        return model.continuations(CONTEXTS, KEYS, generation, suffix_lengths=SUFFIXES, **settings)


def tokens_of(found):
    return [[own.token_ids for own in each.utterances] for each in found]


def numbers_of(found):
    own = [number for each in found for u in each.utterances for number in u.logprobs]
    return own + [number for each in found for number in each.suffix_logprobs]


# A budget of 40 has room for two rows at a time: the others wait for their places.
@each_row(
    ("options", "budget", "spare"),
    [
        (options, budget, spare)
        for options in SAMPLING
        for budget in (16384, 40)
        for spare in (0, 1)
    ],
)
def test_rows_draw_what_they_draw_in_the_plain_way(options, budget, spare):
    plain, model = tiny_language_model(0), stepping(tiny_language_model(0))
    for one in (plain, model):
        one._spare_id = 5 if spare else None
    expected = drawn(plain, options)
    found = drawn(model, options, tokens_per_batch=budget)
    again = drawn(model, options, tokens_per_batch=budget)

    assert tokens_of(expected) == tokens_of(found) == tokens_of(again)
    assert numbers_of(expected) == pytest.approx(numbers_of(found), abs=1e-5)
    assert numbers_of(found) == pytest.approx(numbers_of(again), abs=1e-5)


def test_what_is_drawn_is_not_read_again():
    model = stepping(tiny_language_model(0))
    generation = GenerationConfiguration(max_new_tokens=4, min_new_tokens=4)
    with model.remembering(1 << 20):
        found = model.continuations(CONTEXTS, KEYS, generation)
        ids = found[1].utterances[0].token_ids
        place = model._store.find([*CONTEXTS[1], *ids, 3], limit=99)

    # The last token of a row has not been read.
    assert len(CONTEXTS[1]) + len(ids) - 1 == place[2]


def test_in_half_precision_a_copy_talks_with_the_weights_of_now():
    model = stepping(tiny_language_model(0, is_trained=True))
    before = numbers_of(drawn(model, {}, is_bf16=True))
    exact = numbers_of(drawn(model, {}))
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.mul_(1.5)
    after = numbers_of(drawn(model, {}, is_bf16=True))

    assert "bf16" == replace(model.plan, talks_in="bf16").talks_in
    assert before != exact
    assert before[0] == pytest.approx(exact[0], abs=0.1)
    assert abs(before[0] - after[0]) > 0.1
    assert {torch.float32} == {weight.dtype for weight in model.model.parameters()}


def begun(device, generation, num_rows=8):
    model = tiny_language_model(0).model.to(device)
    contexts = [list(ids) for ids in CONTEXTS]
    reading = CachedReading(model, contexts, [0] * len(contexts), store=None, room=0)
    step = Stepper(model, captures=device == "cuda").step(
        reading.values, generation, num_rows=num_rows, num_slots=24, rules=((0,), (3,), 5)
    )
    uniforms = torch.rand(
        len(contexts),
        generation.max_new_tokens,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
    )
    places = list(range(len(contexts)))
    step.begin(places, Rows(contexts, reading.values, places, uniforms))
    return step


# With top-p a vocabulary is sorted, which is no question to the host either.
@each_row("options", [{}, {"top_p": 0.9, "top_k": 5, "repetition_penalty": 1.2}])
@torch.no_grad()
def test_a_step_copies_nothing_to_the_host(options, monkeypatch):
    generation = GenerationConfiguration(max_new_tokens=6, min_new_tokens=2, **options)
    with other_device() as device:
        step = begun(device, generation)
        step.advance()
        asked = []
        for name in ("tolist", "item", "__bool__", "__int__", "__float__", "cpu", "numpy"):
            monkeypatch.setattr(
                OtherTensor, name, lambda *_, of=name: asked.append(of), raising=False
            )
        step.advance()
    assert [] == asked


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", SAMPLING)
@torch.no_grad()
def test_a_replayed_step_draws_what_the_cpu_draws(options):
    generation = GenerationConfiguration(max_new_tokens=9, **options)
    found = []
    for device in ("cpu", "cuda"):
        with quick_kernels():
            step = begun(device, generation)
            while not all(step.over()):
                step.advance()
            found.append(step.drawn(range(len(CONTEXTS))))

    for here, there in zip(*found, strict=True):
        assert here.token_ids == there.token_ids
        assert here.logprobs == pytest.approx(there.logprobs, abs=1e-4)
