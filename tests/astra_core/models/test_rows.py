import pytest
import torch
from each_row import each_row

from astra_core.engine.logprobs import token_logprobs
from astra_core.models.rows import batches_within, pad_rows, row_batches
from astra_parts.testing import tiny_language_model

pytestmark = pytest.mark.routes

CONTEXTS = [(4, 5, 6, 7), (8,), (9, 10)]
CONTINUATIONS = [(3, 0), (5, 6, 0), ()]


def test_contexts_are_padded_on_the_left_and_continuations_on_the_right():
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=1)

    assert [[4, 5, 6, 7, 3, 0, 1], [1, 1, 1, 8, 5, 6, 0], [1, 1, 9, 10, 1, 1, 1]] == (
        rows.input_ids.tolist()
    )
    assert [[1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]] == (
        rows.attention_mask.tolist()
    )
    assert [0, 1, 2, 3, 4, 5] == rows.position_ids[0, :6].tolist()
    assert [0, 1, 2, 3] == rows.position_ids[1, 3:].tolist()
    assert [[3, 0, 1], [5, 6, 0], [1, 1, 1]] == rows.continuation_ids.tolist()
    assert [[True, True, False], [True] * 3, [False] * 3] == rows.continuation_mask.tolist()


def test_masks_do_not_depend_on_which_id_pads():
    # An end token is a real token even where it is also the padding: nothing is guessed from ids.
    some, others = (pad_rows(CONTEXTS, CONTINUATIONS, pad_id=pad) for pad in (0, 9))

    assert torch.equal(some.attention_mask, others.attention_mask)
    assert torch.equal(some.continuation_mask, others.continuation_mask)


@each_row("kind", ["llama", "gpt2"])
def test_log_probabilities_are_those_of_a_plain_forward_pass(kind):
    model = tiny_language_model(1, kind=kind).model
    logprobs = token_logprobs(model, pad_rows(CONTEXTS, CONTINUATIONS, pad_id=1))

    for row, (context, continuation) in enumerate(zip(CONTEXTS, CONTINUATIONS, strict=True)):
        plain = model(torch.tensor([[*context, *continuation]])).logits[0].log_softmax(dim=1)
        for place, token in enumerate(continuation):
            expected = plain[len(context) + place - 1, token]
            assert float(expected) == pytest.approx(float(logprobs[row, place]), abs=1e-5)


@each_row("kind", ["llama", "gpt2"])
def test_neither_padding_nor_neighbours_change_a_log_probability_or_its_gradient(kind):
    model = tiny_language_model(1, kind=kind, is_trained=True).model
    results = []
    for contexts, continuations, pad_id in (
        (CONTEXTS[1:2], CONTINUATIONS[1:2], 0),
        (CONTEXTS, CONTINUATIONS, 7),
        ([*CONTEXTS, tuple(range(2, 17))], [*CONTINUATIONS, tuple(range(2, 12))], 3),
    ):
        rows = pad_rows(contexts, continuations, pad_id=pad_id)
        own = token_logprobs(model, rows)[min(1, len(contexts) - 1), :3]
        model.zero_grad()
        own.sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((own.detach(), gradient.clone()))

    for logprobs, gradient in results[1:]:
        torch.testing.assert_close(results[0][0], logprobs, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(results[0][1], gradient, rtol=1e-4, atol=1e-5)


def test_padding_has_log_probability_zero_exactly():
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=1)
    logprobs = token_logprobs(tiny_language_model().model, rows)

    assert torch.equal(torch.zeros(4), logprobs[~rows.continuation_mask])
    assert bool((logprobs[rows.continuation_mask] < 0.0).all())


@each_row(("contexts", "continuations"), [([], []), ([(4, 5)], [()])])
def test_nothing_to_score_needs_no_forward_pass(contexts, continuations):
    rows = pad_rows(contexts, continuations, pad_id=0)

    assert token_logprobs(None, rows).shape == (len(contexts), 0)


def test_batches_hold_every_row_once_and_keep_to_the_budget():
    lengths = [5, 30, 2, 17, 17, 8, 60, 1]
    batches = batches_within(lengths, 40)

    assert list(range(8)) == sorted(index for batch in batches for index in batch)
    for batch in batches:
        widest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or widest * len(batch) <= 40
    assert [6] in batches  # longer than the budget, and still there


def test_rows_of_like_length_share_a_batch():
    lengths = [1, 50, 2, 51, 3, 52]

    assert [[0, 2, 4], [1, 3, 5]] == batches_within(lengths, 160)


@each_row(("count", "sizes"), [(63, [63]), (64, [32, 32]), (128, [43, 43, 42])])
def test_batches_are_as_few_and_as_even_as_the_budget_allows(count, sizes):
    lengths = [257] * count

    assert sizes == [len(batch) for batch in batches_within(lengths, 63 * 257)]


def test_no_rows_make_no_batch():
    assert [] == batches_within([], 10)


def test_a_real_end_token_stays_when_the_same_id_pads():
    # From the vector on padding: deciding by id, a peer strips the end token 9 of the first row.
    rows = pad_rows([(5,), (5,)], [(6, 7, 9), (6, 9)], pad_id=9)

    assert [[5, 6, 7, 9], [5, 6, 9, 9]] == rows.input_ids.tolist()
    assert [[1, 1, 1, 1], [1, 1, 1, 0]] == rows.attention_mask.tolist()


def test_rows_are_no_wider_than_their_longest_and_positions_skip_padding():
    rows = pad_rows([(1, 2), (3, 4, 5)], [(6, 7), (8,)], pad_id=0)

    assert [[0, 1, 2, 6, 7], [3, 4, 5, 8, 0]] == rows.input_ids.tolist()
    assert [[0, 0, 1, 2, 3], [0, 1, 2, 3, 3]] == rows.position_ids.tolist()


def test_row_batches_hold_every_pair_once_within_the_budget():
    contexts, continuations = [[1, 2, 3], [4], [5, 6]], [[7], [8, 9], [10]]
    batches = list(row_batches(contexts, continuations, pad_id=0, device="cpu", tokens_per_batch=6))

    assert [0, 1, 2] == sorted(index for chunk, _ in batches for index in chunk)
    assert 1 < len(batches)
    for chunk, rows in batches:
        assert [contexts[i] + continuations[i] for i in chunk] == rows.sequences()
