import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from astra_core.config import GenerationConfiguration
from astra_core.models.decoding import draw, processed_logits

VOCABULARY = 50


@pytest.fixture
def logits():
    return 4.0 * torch.randn(8, VOCABULARY, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def context():
    return torch.randint(0, VOCABULARY, (8, 12), generator=torch.Generator().manual_seed(4))


def seen_in(context):
    return torch.zeros(len(context), VOCABULARY).scatter(1, context, 1.0).bool()


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({"temperature": 0.5}, TemperatureLogitsWarper(0.5)),
        ({"temperature": 1.7}, TemperatureLogitsWarper(1.7)),
        ({"top_k": 1}, TopKLogitsWarper(1)),
        ({"top_k": 7}, TopKLogitsWarper(7)),
        ({"top_k": VOCABULARY + 5}, TopKLogitsWarper(VOCABULARY + 5)),
        ({"top_p": 0.01}, TopPLogitsWarper(0.01)),
        ({"top_p": 0.9}, TopPLogitsWarper(0.9)),
        ({"min_p": 0.05}, MinPLogitsWarper(0.05)),
        ({"min_p": 1.0}, MinPLogitsWarper(1.0)),
        ({"repetition_penalty": 1.5}, RepetitionPenaltyLogitsProcessor(1.5)),
        ({"repetition_penalty": 0.7}, RepetitionPenaltyLogitsProcessor(0.7)),
    ],
)
def test_a_processor_equals_the_one_of_transformers(logits, context, options, theirs):
    generation = GenerationConfiguration(**options)
    ours = processed_logits(logits, generation, seen=seen_in(context))

    torch.testing.assert_close(theirs(context, logits.clone()), ours, rtol=0.0, atol=0.0)


def test_processors_together_come_in_the_order_of_transformers(logits, context):
    generation = GenerationConfiguration(
        repetition_penalty=1.3, temperature=0.8, top_k=20, top_p=0.9, min_p=0.02
    )
    theirs = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.3),
            MinNewTokensLengthLogitsProcessor(12, 3, [5, 6], device="cpu"),
            TemperatureLogitsWarper(0.8),
            TopKLogitsWarper(20),
            TopPLogitsWarper(0.9),
            MinPLogitsWarper(0.02),
        ]
    )
    ours = processed_logits(
        logits, generation, seen=seen_in(context), forbidden=torch.tensor([5, 6])
    )

    torch.testing.assert_close(theirs(context, logits.clone()), ours, rtol=0.0, atol=0.0)


def test_defaults_leave_the_logits_as_they_are(logits):
    assert torch.equal(logits, processed_logits(logits, GenerationConfiguration()))


def test_ties_at_the_edge_of_top_k_stay_together():
    logits = torch.tensor([[1.0, 2.0, 2.0, 3.0]])

    kept = processed_logits(logits, GenerationConfiguration(top_k=2)).isfinite()
    assert [[False, True, True, True]] == kept.tolist()


def test_a_token_at_the_edge_of_the_nucleus_is_treated_as_in_transformers():
    # Four tokens of one quarter each: the sums are exact, so the comparison is one of equality.
    logits = torch.zeros(1, 4)
    ours = processed_logits(logits, GenerationConfiguration(top_p=0.5)).isfinite()

    assert torch.equal(TopPLogitsWarper(0.5)(None, logits).isfinite(), ours)
    assert int(ours.sum()) == 2


def test_tokens_are_drawn_as_often_as_they_are_likely(logits):
    num_draws = 20_000
    uniform = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
    drawn = draw(logits[:1].expand(num_draws, -1), uniform)

    shares = torch.bincount(drawn, minlength=VOCABULARY) / num_draws
    # Evenly spread uniform numbers hit every interval of the distribution up to one draw.
    torch.testing.assert_close(logits[0].softmax(dim=0), shares, rtol=0.0, atol=1.5 / num_draws)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0 - 2.0**-53])
def test_a_token_of_probability_zero_is_never_drawn(uniform):
    logits = torch.full((3, VOCABULARY), -torch.inf)
    logits[0, 0] = logits[1, 20] = logits[2, -1] = 0.0
    logits[1, 21] = 1.0

    drawn = draw(logits, torch.full((3,), uniform, dtype=torch.float64)).tolist()
    assert drawn[0] == 0
    assert drawn[1] in {20, 21}
    assert drawn[2] == VOCABULARY - 1


def test_rounding_at_the_end_of_the_distribution_draws_no_impossible_token(logits):
    logits = torch.cat([logits, torch.full((8, 3), -torch.inf)], dim=1)
    drawn = draw(logits, torch.full((8,), 1.0 - 2.0**-53, dtype=torch.float64))

    assert bool((drawn < VOCABULARY).all())


def test_a_draw_does_not_depend_on_the_batch(logits):
    uniform = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    together = draw(logits, uniform)

    assert together.tolist() == [int(draw(logits[i : i + 1], uniform[i : i + 1])) for i in range(8)]
    assert together.flip(0).tolist() == draw(logits.flip(0), uniform.flip(0)).tolist()
