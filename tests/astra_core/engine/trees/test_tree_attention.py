"""Blocks leave out only what nothing in them may see, and change no number."""

import pytest
import torch
from each_row import each_row
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st
from tiny_architectures import tiny_model

from astra_core.engine import attention
from astra_core.engine.carrier import load_of
from astra_core.engine.logprobs import token_logprobs
from astra_core.engine.masks import additive_mask
from astra_core.engine.plan import recompute
from astra_core.engine.trees import tree_attention
from astra_core.engine.trees.packing import packed_rows
from astra_core.engine.trees.tree_attention import Blocks, by_blocks, with_blocks
from astra_core.models.rows import pad_rows, padded_logprobs

pytestmark = pytest.mark.routes

FORESTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)
DEEP = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7], [1, 2, 3, 8], [1, 2, 9, 9, 9], [1, 2, 9, 8], [4, 4]]


def with_forests(test):
    for sequences in (DEEP, [[5]], [[1, 2, 3], [2, 2], [3]], [[1], [2], [3], [4]]):
        test = example(sequences, 2)(test)
    test = given(FORESTS, st.integers(1, 5))(test)
    return settings(max_examples=50, deadline=None, derandomize=True)(test)


def blocks_of(sequences, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "MAX_WHOLE_TOKENS", most)
        return packed_rows(sequences, device="cpu")


@with_forests
def test_every_token_asks_once_and_every_key_that_it_may_see(sequences, most):
    packed = blocks_of(sequences, most)
    num_rows, width = packed.input_ids.shape

    assert num_rows == len(packed.blocks)
    for visible, blocks in zip(packed.visible, packed.blocks, strict=True):
        asked = [place for block in blocks for place in range(*block.queries)]
        assert list(range(width)) == asked
        for block in blocks:
            keys = [place for stretch in block.keys for place in range(*stretch)]
            assert sorted(set(keys)) == keys
            hidden = torch.ones(width, dtype=torch.bool)
            hidden[keys] = False
            assert not visible[slice(*block.queries)][:, hidden].any()


def test_branches_are_taken_together_up_to_the_size_of_a_whole():
    packed = blocks_of(DEEP, 4)

    # What all share, the branch of six with its own two, the one of four; the other tree's row.
    assert [
        ((0, 2), ((0, 2),)),
        ((2, 3), ((0, 3),)),
        ((3, 7), ((0, 7),)),
        ((7, 8), ((0, 3), (7, 8))),
        ((8, 12), ((0, 2), (8, 12))),
    ] == [(block.queries, block.keys) for block in packed.blocks[0]]
    assert [((0, 2), ((0, 2),)), ((2, 12), ((2, 12),))] == [
        (block.queries, block.keys) for block in packed.blocks[1]
    ]


def test_small_trees_of_a_row_are_taken_together():
    packed = blocks_of([list(range(1, 7)), *([number, 0] for number in range(10, 13))], 4)

    assert [((0, 6), ((0, 6),))] == [(b.queries, b.keys) for b in packed.blocks[0]]
    assert [((0, 4), ((0, 4),)), ((4, 6), ((4, 6),))] == [
        (block.queries, block.keys) for block in packed.blocks[1]
    ]


def test_rows_that_are_short_are_taken_as_they_are():
    packed = blocks_of(DEEP, 12)

    assert [[((0, 12), ((0, 12),))]] * 2 == [
        [(block.queries, block.keys) for block in blocks] for blocks in packed.blocks
    ]


@each_row(
    "sequences",
    [
        # Rows that differ in length only, and a long past that every small branch would repeat.
        [[number, *range(20, 20 + number)] for number in (7, 8, 9)],
        [[*range(30), number, number] for number in range(40, 60)],
    ],
)
def test_blocks_that_save_little_are_not_used(sequences):
    packed = blocks_of(sequences, 4)

    assert max(map(len, packed.blocks)) > 1
    mask = with_blocks(additive_mask(packed.visible, torch.float32), packed.blocks)
    assert load_of(mask, Blocks) is None


def test_the_mask_of_a_block_is_its_part_of_the_whole():
    packed = blocks_of(DEEP, 4)
    whole = with_blocks(additive_mask(packed.visible, torch.float32), packed.blocks)

    assert torch.equal(
        whole[:1, :, 8:12][..., [0, 1, 8, 9, 10, 11]], load_of(whole, Blocks).masks[0][4]
    )


def test_a_mask_of_single_blocks_carries_none():
    packed = packed_rows([[1, 2, 3], [1, 2, 4]], device="cpu")

    mask = with_blocks(additive_mask(packed.visible, torch.float32), packed.blocks)

    assert load_of(mask, Blocks) is None


@pytest.fixture
def noted(monkeypatch):
    """Notes what attention by blocks was given, in pieces as small as three tokens."""
    calls = []

    def note(*given, **named):
        calls.append((*given, *named.values()))
        return by_blocks(*given, **named)

    monkeypatch.setattr(tree_attention, "MAX_WHOLE_TOKENS", 3)
    monkeypatch.setattr(attention, "by_blocks", note)
    return calls


def outcome(model, logprobs, rows):
    model.zero_grad()
    values = logprobs(model, rows)
    weights = torch.linspace(-1.0, 2.0, values.numel(), dtype=values.dtype).view(values.shape)
    (values * weights).sum().backward()
    gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    return [values.detach(), *gradients]


def rows_of(sequences):
    return pad_rows([own[:1] for own in sequences], [own[1:] for own in sequences], pad_id=1)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("opt", marks=pytest.mark.real)])
@given(sequences=FORESTS)
@example(sequences=DEEP)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_attention_by_blocks_has_the_values_and_gradients_of_padded_rows(name, sequences, noted):
    assume(any(len(own) > 1 for own in sequences))
    model = tiny_model(name).double()
    expected = outcome(model, padded_logprobs, rows_of(sequences))
    found = outcome(model, token_logprobs, rows_of(sequences))

    for first, second in zip(expected, found, strict=True):
        torch.testing.assert_close(first, second, rtol=0.0, atol=1e-10)


@each_row("name", ["gpt2", "llama grouped", "qwen2 mixed", "mistral", "gemma3"])
def test_attention_falls_apart_in_every_layer_and_keeps_groups_and_windows(name, noted):
    model = tiny_model(name)
    expected = outcome(model, padded_logprobs, rows_of(DEEP))
    noted.clear()
    found = outcome(model, token_logprobs, rows_of(DEEP))

    assert len(noted) == model.config.num_hidden_layers
    for first, second in zip(expected, found, strict=True):
        torch.testing.assert_close(first, second, rtol=0.0, atol=1e-4 * float(first.abs().max()))


def test_recomputed_activations_give_the_same_gradients_by_blocks(noted):
    model = tiny_model("gpt2").double()
    expected = outcome(model, token_logprobs, rows_of(DEEP))
    noted.clear()
    with recompute(model):
        found = outcome(model, token_logprobs, rows_of(DEEP))

    # Once forward and once more for the gradient.
    assert len(noted) == 2 * model.config.num_hidden_layers
    for first, second in zip(expected, found, strict=True):
        torch.testing.assert_close(first, second, rtol=0.0, atol=1e-12)


def test_attention_by_blocks_stays_near_fp32_under_autocast(noted):
    model = tiny_model("gpt2")
    with torch.no_grad():
        expected = padded_logprobs(model, rows_of(DEEP))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = token_logprobs(model, rows_of(DEEP))

    assert noted
    torch.testing.assert_close(expected, found, rtol=0.02, atol=0.1)


def test_attention_of_a_special_kind_is_not_taken_apart(noted):
    packed = blocks_of(DEEP[:5], 4)
    mask = with_blocks(additive_mask(packed.visible, torch.float32), packed.blocks)
    query, key, value = (torch.randn(1, 2, 12, 4) for _ in range(3))
    module = torch.nn.Module()
    plain, _ = attention.attention(module, query, key, value, mask)
    dropping, _ = attention.attention(module, query, key, value, mask, dropout=1e-9)

    assert 1 == len(noted)
    torch.testing.assert_close(plain, dropping)


def test_attention_of_one_layer_multiplies_less_than_all_by_all():
    query, key, value = (torch.randn(1, 2, 12, 4) for _ in range(3))
    packed = blocks_of(DEEP[:5], 4)
    mask = with_blocks(additive_mask(packed.visible, torch.float32), packed.blocks)
    sizes = []

    def attend(query, key, value, mask):
        sizes.append(query.shape[2] * key.shape[2])
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
        return attended.transpose(1, 2)

    found = by_blocks(attend, query, key=key, value=value, blocks=load_of(mask, Blocks))

    assert [4, 3, 28, 4, 24] == sizes
    torch.testing.assert_close(attend(query, key, value, mask), found)
