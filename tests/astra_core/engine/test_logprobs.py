"""Values and gradients of packed trees, chunked logits, autocast and recomputation."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model
from torch.utils.flop_counter import FlopCounterMode

from astra_core.engine.abilities import abilities_of
from astra_core.engine.logprobs import (
    continuation_states,
    token_logits,
    token_logprobs,
    token_logprobs_and_collisions,
    token_logprobs_and_entropies,
)
from astra_core.engine.machine import Machine
from astra_core.engine.plan import Plan, recompute
from astra_core.models.rows import pad_rows, padded_logits, padded_logprobs

pytestmark = pytest.mark.routes

FORESTS = {
    "siblings": ([(4, 5, 6, 7)] * 3, [(2, 0), (2, 3, 0), (8,)]),
    "turns": ([(4, 5), (4, 5, 2, 0, 6, 0), (4, 5, 2, 0, 7)], [(2, 0), (3,), (3, 3, 0)]),
    "one inside another": ([(4, 5, 6), (4, 5), (4,)], [(7, 8, 0), (6, 7), (5, 6, 7, 8)]),
    "duplicates": ([(4, 5)] * 4, [(2, 0)] * 4),
    "nothing shared": ([(4, 5), (6,), (7, 8, 9)], [(2, 0), (3,), (4, 5)]),
    "contexts of one token": ([(4,)] * 3 + [(5,)], [(2,), (2, 0), (3,), (2,)]),
    "several trees": ([(4, 5, 6)] * 4 + [(7,), (8,)], [(2, 3), (2,), (3,), (0,), (1,), (1, 2)]),
    "nothing said by some": ([(4, 5, 6)] * 3, [(), (2,), ()]),
}


def random_forest(seed):
    """Conversations that fork: contexts share beginnings, continuations are short."""
    draw = random.Random(seed)
    known = [[draw.randrange(20)] for _ in range(draw.randint(1, 3))]
    for _ in range(draw.randint(0, 12)):
        trunk = draw.choice(known)
        new = [draw.randrange(20) for _ in range(draw.randint(1, 5))]
        known.append(trunk[: draw.randint(1, len(trunk))] + new)
    count = draw.randint(1, 12)
    contexts = [tuple(draw.choice(known)) for _ in range(count)]
    tails = [tuple(draw.randrange(6) for _ in range(draw.randint(0, 4))) for _ in range(count)]
    return contexts, tails


def value_and_gradient(model, logprobs, rows):
    """Of a loss in which every token has a weight of its own."""
    values = logprobs(model, rows)
    weights = torch.linspace(-1.0, 2.0, values.numel(), dtype=values.dtype).view(values.shape)
    loss = (values * weights).sum() + (values.sum(dim=1) ** 2).sum()
    model.zero_grad()
    if loss.requires_grad:
        loss.backward()
    empty = [torch.zeros_like(weight) for weight in model.parameters()]
    found = [weight.grad for weight in model.parameters()]
    pairs = zip(found, empty, strict=True)
    gradient = torch.cat([(zero if own is None else own).flatten() for own, zero in pairs])
    return loss.detach(), gradient


def assert_exactly_alike(model, rows):
    """To the rounding of float64."""
    loss, gradient = value_and_gradient(model, padded_logprobs, rows)
    own, found = value_and_gradient(model, token_logprobs, rows)
    torch.testing.assert_close(loss, own, rtol=1e-10, atol=1e-10)
    size = float(gradient.abs().max())
    torch.testing.assert_close(gradient, found, rtol=1e-10, atol=1e-10 * size)


@pytest.fixture(scope="module", params=["gpt2", "opt"])
def exact_model(request):
    """All in float64, in which rounding hides no mistake; a norm of others rounds to fp32."""
    return tiny_model(request.param).double()


@each_row("name", ["llama grouped", "mistral", "gpt2"])
def test_rows_aligned_for_a_gpu_have_the_value_and_gradient_of_padded_ones(name):
    model = tiny_model(name).double()
    plan = Plan.of(model, replace(Machine.here(), fixes_shapes=True))
    assert plan.aligns_rows
    for contexts, tails in (random_forest(seed) for seed in range(4)):
        rows = pad_rows(contexts, tails, pad_id=0)
        expected = value_and_gradient(model, padded_logprobs, rows)
        found = value_and_gradient(model, partial(token_logprobs, plan=plan), rows)
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@each_row("name", FORESTS)
def test_a_forest_has_the_loss_and_the_gradient_of_padded_rows(exact_model, name):
    assert_exactly_alike(exact_model, pad_rows(*FORESTS[name], pad_id=1))


@each_row("seed", range(10))
def test_any_forest_has_the_loss_and_the_gradient_of_padded_rows(exact_model, seed):
    assert_exactly_alike(exact_model, pad_rows(*random_forest(seed), pad_id=seed % 20))


def tokens_read(model, rows):
    counts = []
    handle = model.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: counts.append(given[0].numel())
    )
    values = token_logprobs(model, rows)
    handle.remove()
    return sum(counts), values


def test_what_sequences_share_is_read_once():
    model = tiny_model("gpt2")
    abilities_of(model)
    context = tuple(2 + index % 17 for index in range(50))
    shared, _ = tokens_read(model, pad_rows([context] * 6, [(2, 3)] * 3 + [(4, 5)] * 3, pad_id=0))
    apart, _ = tokens_read(
        model, pad_rows([(first, *context) for first in range(6)], [(2, 3)] * 6, pad_id=0)
    )

    assert 54 == shared
    assert 6 * 53 == apart


def test_logits_are_computed_where_they_are_asked_for_only():
    vocabulary = 4000
    model = tiny_model("llama untied", vocab_size=vocabulary)
    abilities_of(model)
    context = tuple(2 + index % 17 for index in range(50))
    rows = pad_rows([context, context[1:]], [(2, 3), (4,)], pad_id=0)
    with FlopCounterMode(display=False) as counter:
        token_logprobs(model, rows)

    # Three lines of the head out of a hundred, and layers that cost as much as nine more.
    line = 2 * 16 * vocabulary
    assert 3 * line <= counter.get_total_flops() < 15 * line


def rows_of_many_sizes():
    return pad_rows(*random_forest(7), pad_id=0)


def test_logits_are_those_of_padded_rows():
    rows = rows_of_many_sizes()
    for name in ("gpt2", "cohere", "bloom"):
        model = tiny_model(name)
        with torch.no_grad():
            states = continuation_states(model, rows)
            found = token_logits(model, rows, states=states)
            expected = padded_logits(model, rows)[rows.continuation_mask]

        torch.testing.assert_close(expected, found, rtol=0.0, atol=1e-4)


def test_known_states_are_not_computed_again():
    model, rows = tiny_model("gpt2"), rows_of_many_sizes()
    states = continuation_states(model, rows)
    expected, calls = token_logprobs(model, rows), []
    model.base_model.register_forward_pre_hook(lambda *_: calls.append(1))

    assert torch.equal(expected, token_logprobs(model, rows, states=states))
    assert [] == calls


@each_row("name", ["gpt2", "qwen2 mixed"])
def test_recomputed_activations_give_the_same_gradients_of_packed_trees(name):
    model, rows = tiny_model(name).double(), rows_of_many_sizes()
    loss, gradient = value_and_gradient(model, token_logprobs, rows)
    calls = []
    layer = next(m for m in model.modules() if type(m).__name__.endswith(("MLP", "Mlp")))
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    with recompute(model):
        own, found = value_and_gradient(model, token_logprobs, rows)

    assert 2 == len(calls)
    torch.testing.assert_close(loss, own, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, found, rtol=1e-10, atol=1e-10)


@each_row("name", ["gpt2", "llama tied"])
def test_under_autocast_packed_trees_stay_near_padded_rows_and_both_near_fp32(name):
    model, rows = tiny_model(name), rows_of_many_sizes()
    abilities_of(model)
    with torch.no_grad():
        expected = padded_logprobs(model, rows)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            padded, packed = padded_logprobs(model, rows), token_logprobs(model, rows)

    assert torch.float32 == packed.dtype
    # bf16 keeps eight bits: values of up to six nats, a few roundings.
    torch.testing.assert_close(padded, packed, rtol=0.02, atol=0.1)
    torch.testing.assert_close(expected, packed, rtol=0.02, atol=0.1)
    assert float((packed - padded).abs().mean()) < 0.03
    assert not torch.equal(expected, packed)


def test_gradients_under_autocast_reach_fp32_weights():
    model, rows = tiny_model("gpt2"), rows_of_many_sizes()
    _, expected = value_and_gradient(model, token_logprobs, rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, found = value_and_gradient(model, token_logprobs, rows)

    assert {torch.float32} == {weight.grad.dtype for weight in model.parameters()}
    cosine = torch.nn.functional.cosine_similarity(expected, found, dim=0)
    assert float(cosine) > 0.999


# Logits that are asked of a head are in fp32.
NEAR = {"check_dtype": False, "rtol": 1e-5, "atol": 1e-5}


class Doubled(torch.nn.Linear):
    """A head that does more than multiply, so that its logits must be asked of it."""

    def forward(self, states):
        return 2.0 * super().forward(states)


def with_a_head_of_its_own(model):
    head = model.get_output_embeddings()
    own = Doubled(head.in_features, head.out_features, bias=False).to(head.weight)
    own.weight = torch.nn.Parameter(head.weight.detach().clone())
    model.set_output_embeddings(own)
    return model


def padded_distribution(model, rows):
    """Log-probabilities of the whole vocabulary before each token, every row in full."""
    logs = padded_logits(model, rows).log_softmax(dim=-1)
    return logs, rows.continuation_mask


@each_row("adapt", [lambda model: model, with_a_head_of_its_own])
@each_row("name", ["siblings", "turns", "several trees", "nothing said by some"])
def test_entropies_and_collisions_of_packed_trees_are_those_of_padded_rows(name, adapt):
    model, rows = adapt(tiny_model("gpt2").double()), pad_rows(*FORESTS[name], pad_id=0)
    logs, mask = padded_distribution(model, rows)
    expected = -(logs.exp() * logs).sum(dim=-1) * mask
    logprobs, entropies = token_logprobs_and_entropies(model, rows)
    same, collisions = token_logprobs_and_collisions(model, rows)

    torch.testing.assert_close(expected, entropies, **NEAR)
    squares = (2.0 * logs).logsumexp(dim=-1) * mask
    torch.testing.assert_close(squares.detach(), collisions, **NEAR)
    assert not collisions.requires_grad
    for found in (logprobs, same):
        torch.testing.assert_close(token_logprobs(model, rows), found, **NEAR)


@each_row("adapt", [lambda model: model, with_a_head_of_its_own])
def test_the_gradient_of_entropies_of_packed_trees_is_that_of_padded_rows(adapt):
    model, rows = adapt(tiny_model("gpt2").double()), rows_of_many_sizes()

    def padded(model, rows):
        logs, mask = padded_distribution(model, rows)
        return -(logs.exp() * logs).sum(dim=-1) * mask

    def packed(model, rows):
        return token_logprobs_and_entropies(model, rows)[1]

    loss, gradient = value_and_gradient(model, padded, rows)
    own, found = value_and_gradient(model, packed, rows)

    assert float(gradient.abs().max()) > 0.0
    torch.testing.assert_close(loss, own, **NEAR)
    torch.testing.assert_close(
        gradient, found, check_dtype=False, rtol=1e-5, atol=1e-5 * float(gradient.abs().max())
    )


def test_where_nothing_is_said_there_are_neither_entropies_nor_collisions():
    model, rows = tiny_model("gpt2"), pad_rows([(4, 5)], [()], pad_id=0)

    for find in (token_logprobs_and_entropies, token_logprobs_and_collisions):
        assert [(1, 0)] * 2 == [tuple(found.shape) for found in find(model, rows)]
