from itertools import pairwise

import pytest
import torch
from each_row import each_row

from astra_core.engine import head as head_module
from astra_core.engine.head import label_logprobs
from astra_core.engine.products import split_product
from astra_core.engine.products.routes import open_route
from astra_core.engine.products.split_product import MIN_ROWS
from astra_core.models.rows import chosen_logprobs

pytestmark = pytest.mark.routes

ROUTE = open_route("cpu")
NUM_LABELS, WIDTH, VOCABULARY = 13, 6, 11


def parts(dtype, *, has_bias=True, sizes=(NUM_LABELS, WIDTH, VOCABULARY)):
    num_labels, width, vocabulary = sizes
    torch.manual_seed(0)
    head = torch.nn.Linear(width, vocabulary, bias=has_bias).to(dtype)
    states = torch.randn(num_labels, width, dtype=dtype, requires_grad=True)
    return head, states, torch.arange(num_labels) % vocabulary


def outcome(values, head, states):
    weights = torch.linspace(-1.0, 2.0, NUM_LABELS, dtype=values.dtype)
    head.zero_grad()
    states.grad = None
    (values * weights).sum().backward()
    return [values.detach(), states.grad, *(weight.grad for weight in head.parameters())]


@each_row("columns", [1, 4, VOCABULARY, 100])
@each_row("most", [0, NUM_LABELS * VOCABULARY])
@each_row("has_bias", [True, False])
def test_label_logprobs_are_those_of_a_log_softmax_whatever_the_blocks(
    columns, most, has_bias, monkeypatch
):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    monkeypatch.setattr(head_module, "_MIN_BLOCK", columns)
    monkeypatch.setattr(head_module, "_LOGITS_PER_BLOCK", 1)
    head, states, labels = parts(torch.float64, has_bias=has_bias)
    plain = head(states).log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
    expected = outcome(plain, head, states)
    found = label_logprobs(head, states, labels, route=ROUTE)

    for first, second in zip(expected, outcome(found, head, states), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


@each_row("most", [0, NUM_LABELS * VOCABULARY])
def test_label_logprobs_pass_torchs_own_check_of_gradients(most, monkeypatch):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    monkeypatch.setattr(head_module, "_MIN_BLOCK", 4)
    head, states, labels = parts(torch.float64, sizes=(5, 3, 7))

    def of(states, weight, bias):
        copy = torch.nn.Linear(3, 7).double()
        with torch.no_grad():
            del copy.weight, copy.bias
        copy.weight, copy.bias = weight, bias
        return label_logprobs(copy, states, labels, route=ROUTE)

    assert torch.autograd.gradcheck(of, (states, head.weight, head.bias))


def test_label_logprobs_of_a_frozen_head_leave_it_without_a_gradient():
    head, states, labels = parts(torch.float32)
    head.requires_grad_(requires_grad=False)
    label_logprobs(head, states, labels, route=ROUTE).sum().backward()

    assert states.grad is not None
    assert head.weight.grad is None


def test_label_logprobs_under_autocast_keep_the_master_weights_in_fp32():
    head, states, labels = parts(torch.float32)
    exact = outcome(label_logprobs(head, states, labels, route=ROUTE), head, states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = label_logprobs(head, states, labels, route=ROUTE)
        plain = chosen_logprobs(head(states), labels)
    ours, theirs = outcome(found, head, states), outcome(plain, head, states)

    assert {torch.float32} == {value.dtype for value in ours}
    for own, other, right in zip(ours, theirs, exact, strict=True):
        torch.testing.assert_close(other, own, rtol=0.02, atol=0.02)
        # It did round: the autocast reached the products.
        assert not torch.equal(right, own)


@each_row(
    ("most", "widths"),
    # Every block once forward, and once more for the gradient unless all of them are kept.
    [(NUM_LABELS * VOCABULARY - 1, [4, 4, 3, 4, 4, 3]), (NUM_LABELS * VOCABULARY, [4, 4, 3])],
)
def test_label_logprobs_make_a_block_of_logits_at_a_time_and_keep_no_more_than_asked(
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
    label_logprobs(head, states, labels, route=ROUTE).sum().backward()

    assert widths == made


@pytest.mark.skipif(
    split_product._library_product() is None, reason="torch was built without MKL's product of bf16"
)
@each_row("most", [0, MIN_ROWS * 512])
def test_label_logprobs_by_split_products_are_those_of_plain_ones(most, monkeypatch):
    monkeypatch.setattr(head_module, "_MAX_KEPT_LOGITS", most)
    torch.manual_seed(0)
    head = torch.nn.Linear(512, 512)
    states = torch.randn(MIN_ROWS, 512, requires_grad=True)
    labels = torch.arange(MIN_ROWS)

    def gradients(route, count):
        head.zero_grad()
        own = states[:count]
        values = label_logprobs(head, own, labels[:count], route=route)
        given = torch.autograd.grad(values.square().sum(), [states, *head.parameters()])
        return [values.detach(), *given]

    for plain, split in zip(
        gradients("plain", MIN_ROWS), gradients("split", MIN_ROWS), strict=True
    ):
        assert not torch.equal(plain, split)
        torch.testing.assert_close(plain, split, rtol=0.0, atol=2e-5 * float(plain.abs().max()))
    # Of one row less nothing is split.
    few = zip(gradients("plain", MIN_ROWS - 1), gradients("split", MIN_ROWS - 1), strict=True)
    assert all(torch.equal(plain, same) for plain, same in few)


def test_nothing_is_kept_or_split_where_no_gradient_is_asked_for(monkeypatch):
    head, states = torch.nn.Linear(512, 512), torch.randn(MIN_ROWS, 512)
    labels, given = torch.arange(MIN_ROWS), []
    apply = head_module._LabelLogprobs.apply

    def noted(*own):
        given.append(own[-1])
        return apply(*own)

    monkeypatch.setattr(head_module._LabelLogprobs, "apply", noted)
    with torch.no_grad():
        found = label_logprobs(head, states, labels, route="split")
    expected = label_logprobs(head, states, labels, route="plain")

    assert [(False, False), (True, False)] == [(own.is_kept, own.is_split) for own in given]
    assert torch.equal(expected, found)


def test_tokens_that_a_bias_forbids_leave_the_others_finite(monkeypatch):
    monkeypatch.setattr(head_module, "_MIN_BLOCK", 4)
    monkeypatch.setattr(head_module, "_LOGITS_PER_BLOCK", 1)
    head, states, _ = parts(torch.float32)
    labels = torch.full((NUM_LABELS,), 2)
    with torch.no_grad():
        head.bias[4] = -torch.inf
    expected = head(states).log_softmax(dim=1)[:, 2]

    torch.testing.assert_close(expected, label_logprobs(head, states, labels, route=ROUTE))


@each_row("wrong", [-1, VOCABULARY])
def test_labels_that_are_no_tokens_are_refused(wrong):
    head, states, labels = parts(torch.float32)
    labels[3] = wrong
    with pytest.raises(IndexError, match=f"labels must be tokens below {VOCABULARY}, got "):
        label_logprobs(head, states, labels, route=ROUTE)


def test_label_logprobs_of_nothing_are_nothing():
    head, states, labels = parts(torch.float32)

    assert label_logprobs(head, states[:0], labels[:0], route=ROUTE).shape == (0,)


@each_row(
    ("rows", "columns"), [(1, 60_000), (64, 8192), (2048, 4096), (1 << 14, 1024), (1 << 20, 512)]
)
def test_blocks_are_wide_for_few_rows_and_bounded_in_memory_for_many(rows, columns):
    weight = torch.empty(60_000, 1, device="meta")
    blocks = list(head_module.vocabulary_blocks(weight, rows))

    assert slice(0, columns) == blocks[0]
    assert 60_000 == blocks[-1].stop
    assert all(one.stop == other.start for one, other in pairwise(blocks))
