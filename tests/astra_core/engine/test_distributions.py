import math

import pytest
import torch
from each_row import each_row

from astra_core.engine import head as head_module
from astra_core.engine.distributions import collision_logprobs, label_logprobs_and_entropies
from astra_core.engine.head import label_logprobs
from astra_core.engine.products import split_product
from astra_core.engine.products.routes import open_route
from astra_core.engine.products.split_product import MIN_ROWS

pytestmark = pytest.mark.routes

ROUTE = open_route("cpu")
NUM_LABELS, WIDTH, VOCABULARY = 13, 6, 11


def parts(dtype, *, has_bias=True, sizes=(NUM_LABELS, WIDTH, VOCABULARY)):
    num_labels, width, vocabulary = sizes
    torch.manual_seed(0)
    head = torch.nn.Linear(width, vocabulary, bias=has_bias).to(dtype)
    states = 3.0 * torch.randn(num_labels, width, dtype=dtype)
    return head, states.requires_grad_(), torch.arange(num_labels) % vocabulary


def outcome(logprobs, entropies, head, states):
    """Both, and the gradients of a sum in which every entry has a weight of its own."""
    weights = torch.linspace(-1.0, 2.0, NUM_LABELS, dtype=logprobs.dtype)
    head.zero_grad()
    states.grad = None
    (logprobs * weights + entropies * weights.flip(0)).sum().backward()
    gradients = [states.grad, *(weight.grad for weight in head.parameters())]
    return [logprobs.detach(), entropies.detach(), *gradients]


def plain(head, states, labels):
    logs = head(states).log_softmax(dim=1)
    return logs.gather(1, labels[:, None])[:, 0], -(logs.exp() * logs).sum(dim=1)


@pytest.fixture(params=[1, 4, VOCABULARY, 100])
def columns(request, monkeypatch):
    """Columns of the vocabulary that are processed at a time."""
    monkeypatch.setattr(head_module, "_MIN_BLOCK", request.param)
    monkeypatch.setattr(head_module, "_LOGITS_PER_BLOCK", 1)


@pytest.mark.usefixtures("columns")
@each_row("most", [0, NUM_LABELS * VOCABULARY])
@each_row("has_bias", [True, False])
def test_log_probabilities_and_entropies_are_a_log_softmaxs_whatever_the_blocks(
    most, has_bias, monkeypatch
):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    head, states, labels = parts(torch.float64, has_bias=has_bias)
    expected = outcome(*plain(head, states, labels), head, states)
    found = label_logprobs_and_entropies(head, states, labels, route=ROUTE)

    for first, second in zip(expected, outcome(*found, head, states), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


@each_row("most", [0, NUM_LABELS * VOCABULARY])
def test_both_pass_torchs_own_check_of_gradients(most, monkeypatch):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    monkeypatch.setattr(head_module, "_MIN_BLOCK", 4)
    head, states, labels = parts(torch.float64, sizes=(5, 3, 7))

    def of(states, weight, bias):
        copy = torch.nn.Linear(3, 7).double()
        with torch.no_grad():
            del copy.weight, copy.bias
        copy.weight, copy.bias = weight, bias
        return label_logprobs_and_entropies(copy, states, labels, route=ROUTE)

    assert torch.autograd.gradcheck(of, (states, head.weight, head.bias))


@pytest.mark.usefixtures("columns")
def test_the_log_probabilities_have_the_bytes_of_those_without_entropies():
    head, states, labels = parts(torch.float32)
    alone = label_logprobs(head, states, labels, route=ROUTE)
    beside, _ = label_logprobs_and_entropies(head, states, labels, route=ROUTE)

    assert torch.equal(alone, beside)


@pytest.mark.usefixtures("columns")
def test_entropies_of_known_distributions_also_where_tokens_are_barred():
    head, states, labels = parts(torch.float32)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(-torch.inf)
        # What the logits have in common does not count.
        head.bias[[2, 5, 6, 10]] = 30.0
    logprobs, entropies = label_logprobs_and_entropies(
        head, states, torch.full_like(labels, 5), route=ROUTE
    )
    (logprobs + entropies).sum().backward()

    torch.testing.assert_close(torch.full((NUM_LABELS,), -math.log(4)), logprobs.detach())
    torch.testing.assert_close(torch.full((NUM_LABELS,), math.log(4)), entropies.detach())
    assert bool(torch.isfinite(states.grad).all())
    # Of log p: 1 - 1/4 at the label and -1/4 at the other three; equal entropies have none.
    expected = torch.zeros(VOCABULARY)
    expected[[2, 6, 10]], expected[5] = -NUM_LABELS / 4, 3 * NUM_LABELS / 4
    torch.testing.assert_close(expected, head.bias.grad)


@pytest.mark.usefixtures("columns")
def test_collisions_are_the_log_of_the_sum_of_squared_probabilities():
    head, states, _ = parts(torch.float64)
    expected = head(states).softmax(dim=1).square().sum(dim=1).log().detach()
    found = collision_logprobs(head, states, route=ROUTE)

    torch.testing.assert_close(expected, found, rtol=1e-12, atol=1e-12)
    assert not found.requires_grad


def test_collisions_without_a_bias_are_those_of_an_even_distribution():
    head, states, _ = parts(torch.float32, has_bias=False)
    with torch.no_grad():
        head.weight.zero_()

    # Every token has probability 1 / V: the sum of squares is 1 / V too.
    expected = torch.full((NUM_LABELS,), -math.log(VOCABULARY))
    torch.testing.assert_close(expected, collision_logprobs(head, states, route=ROUTE))


@each_row(
    ("most", "widths"),
    [(NUM_LABELS * VOCABULARY - 1, [4, 4, 3, 4, 4, 3]), (NUM_LABELS * VOCABULARY, [4, 4, 3])],
)
def test_a_block_of_logits_is_made_at_a_time_and_no_more_are_kept_than_asked(
    most, widths, monkeypatch
):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    made = []
    multiply = head_module.multiply

    def noted(left, right):
        if left.shape == (NUM_LABELS, WIDTH):
            made.append(right.shape[1])
        return multiply(left, right)

    head, states, labels = parts(torch.float32)
    monkeypatch.setattr(head_module, "_MIN_BLOCK", 4)
    monkeypatch.setattr(head_module, "_LOGITS_PER_BLOCK", 1)
    monkeypatch.setattr(head_module, "multiply", noted)
    found = label_logprobs_and_entropies(head, states, labels, route=ROUTE)
    torch.stack(found).sum().backward()

    assert widths == made


def test_a_frozen_head_stays_without_a_gradient():
    head, states, labels = parts(torch.float32)
    head.requires_grad_(requires_grad=False)
    _, entropies = label_logprobs_and_entropies(head, states, labels, route=ROUTE)
    entropies.sum().backward()

    assert float(states.grad.abs().max()) > 0.0
    assert head.weight.grad is None


def test_under_autocast_both_are_in_fp32_and_near_the_exact_ones():
    head, states, labels = parts(torch.float32)
    exact = outcome(*label_logprobs_and_entropies(head, states, labels, route=ROUTE), head, states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = label_logprobs_and_entropies(head, states, labels, route=ROUTE)
        collisions = collision_logprobs(head, states.detach(), route=ROUTE)
    rounded = outcome(*found, head, states)

    assert {torch.float32} == {value.dtype for value in [*rounded, collisions]}
    for own, right in zip(rounded, exact, strict=True):
        torch.testing.assert_close(right, own, rtol=0.05, atol=0.05 * float(right.abs().max()))
        assert not torch.equal(right, own)


@pytest.mark.skipif(
    split_product._library_product() is None, reason="torch was built without MKL's product of bf16"
)
@each_row("most", [0, MIN_ROWS * 512])
def test_split_products_give_what_plain_ones_do(most, monkeypatch):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    torch.manual_seed(0)
    head = torch.nn.Linear(512, 512)
    states = torch.randn(MIN_ROWS, 512, requires_grad=True)
    labels = torch.arange(MIN_ROWS)

    def results(route):
        values = label_logprobs_and_entropies(head, states, labels, route=route)
        total = torch.stack(values).square().sum()
        given = torch.autograd.grad(total, [states, *head.parameters()])
        return [*(value.detach() for value in values), *given]

    for one, other in zip(results("plain"), results("split"), strict=True):
        assert not torch.equal(one, other)
        torch.testing.assert_close(one, other, rtol=0.0, atol=4e-5 * float(one.abs().max()))


def test_of_nothing_there_is_nothing():
    head, states, labels = parts(torch.float32)
    found = label_logprobs_and_entropies(head, states[:0], labels[:0], route=ROUTE)

    assert [(0,), (0,)] == [tuple(values.shape) for values in found]
    assert (0,) == tuple(collision_logprobs(head, states[:0].detach(), route=ROUTE).shape)
