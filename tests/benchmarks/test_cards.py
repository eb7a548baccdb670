import torch

from benchmarks.cards import NEW_TOKENS, PROMPT_TOKENS, SIZES, TINY, Card, largest_gap


def test_sizes_are_those_of_their_names():
    for size, billions in zip(SIZES, (0.49, 1.54), strict=True):
        with torch.device("meta"):
            model = size.model(torch.device("meta"), dtype=torch.bfloat16)
        count = sum(weight.numel() for weight in model.parameters())
        assert round(count / 1e9, 2) == billions


def test_an_update_multiplies_every_weight_six_times_but_the_head_only_where_it_scores():
    head = TINY.vocabulary * TINY.hidden
    tokens = PROMPT_TOKENS + NEW_TOKENS
    attention = 12 * TINY.layers * TINY.hidden * tokens / 2

    assert TINY.update_flops(head + 1000, 2) == (
        2 * tokens * (6 * 1000 + attention) + 2 * NEW_TOKENS * 6 * head
    )


def test_a_card_is_over_when_its_time_is():
    card = Card.measured(torch.device("cpu"), seconds=0.0, is_tiny=True)

    assert card.is_over
    assert card.bytes_per_s > 0.0
    assert card.flops_per_s > 0.0


def test_the_largest_gap_is_of_any_place():
    assert 3.0 == largest_gap([[1.0, 2.0], [5.0]], [[1.0, 1.0], [8.0]])
