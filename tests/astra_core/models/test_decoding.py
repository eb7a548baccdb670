import pytest
import torch
from each_row import each_row
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
from astra_core.models.decoding import draw, processed_logits, sample

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


@each_row("uniform", [0.0, 0.5, 1.0 - 2.0**-53])
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


SETTINGS = [
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 20, "temperature": 0.6},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.03, "repetition_penalty": 1.3, "temperature": 1.4},
    {"top_k": 240},
    {"top_k": 10_000, "top_p": 0.9},
    {"top_p": 0.9},
    {"top_p": 0.3, "temperature": 1.7},
    {"min_p": 0.05},
    {"repetition_penalty": 1.5, "top_p": 0.95},
    {"repetition_penalty": 0.8, "min_p": 0.02, "top_k": 30},
]
# Numbers of logits: fewer than twice the candidates, a multiple of a block, and neither.
SIZES = (40, 128, 259)
MORE = 2100  # enough that a nucleus is looked for among the likeliest


def sampled_and_defined(logits, uniform, generation, seed=0):
    """What ``sample`` gives, and what its definition gives."""
    draw_of = torch.Generator().manual_seed(seed)
    options = {
        "seen": torch.rand(logits.shape, generator=draw_of) < 0.2,
        "forbidden": torch.tensor([3, 7, logits.shape[1] - 1]),
    }
    token, logprob = sample(logits, generation, uniform, **options)
    expected = draw(processed_logits(logits.float(), generation, **options), uniform)
    return token, logprob, expected


@each_row("rounding", [torch.float32, torch.bfloat16, torch.float16])
@each_row("options", SETTINGS)
def test_a_sample_is_the_draw_that_defines_it_also_among_ties(options, rounding):
    # Logits of eight bits are tied by the dozen, also at the edge of top-k.
    generation = GenerationConfiguration(**options)
    sizes = (*SIZES, MORE) if "top_p" in options and "top_k" not in options else SIZES
    for seed, size in enumerate(sizes):
        draw_of = torch.Generator().manual_seed(seed)
        logits = (3.0 * torch.randn(100, size, generator=draw_of)).to(rounding)
        uniform = torch.rand(100, dtype=torch.float64, generator=draw_of)
        token, logprob, expected = sampled_and_defined(logits, uniform, generation, seed)
        plain = logits.float().log_softmax(dim=1).gather(1, token[:, None])[:, 0]

        assert expected.tolist() == token.tolist()
        torch.testing.assert_close(plain, logprob, rtol=0.0, atol=1e-5)


def test_ties_beyond_the_candidates_that_were_looked_at_are_kept():
    # Forty equal logits at the edge of top-5: all of them are in, and any may come.
    logits = torch.full((2000, 200), -5.0)
    logits[:, :40] = 1.0
    uniform = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    token, _ = sample(logits, GenerationConfiguration(top_k=5), uniform)

    assert set(range(40)) == set(token.tolist())


def test_a_nucleus_is_the_same_whether_sorted_or_looked_for():
    # Rows of which few tokens, some hundreds and nearly all are left, more than are looked at once.
    draw_of = torch.Generator().manual_seed(1)
    spread = torch.tensor([6.0, 1.0, 0.1]).repeat(80)[:, None]
    logits = spread * torch.randn(240, 6000, generator=draw_of)
    uniform = torch.rand(240, dtype=torch.float64, generator=draw_of)
    for top_p in (0.01, 0.5, 0.9, 0.999):
        generation = GenerationConfiguration(top_p=top_p, temperature=0.7)
        token, _, expected = sampled_and_defined(logits, uniform, generation)

        assert expected.tolist() == token.tolist()


def test_whole_distributions_are_drawn_from_to_rounding(record_testsuite_property):
    num_draws, rows, differing = 20_000, 1000, 0
    for seed in range(num_draws // rows):
        draw_of = torch.Generator().manual_seed(seed)
        logits = 3.0 * torch.randn(rows, 259, generator=draw_of)
        uniform = torch.rand(rows, dtype=torch.float64, generator=draw_of)
        token, _ = sample(logits, GenerationConfiguration(), uniform)
        differing += int((token != draw(logits, uniform)).sum())

    record_testsuite_property("differing draws", f"{differing} of {num_draws}")
    assert differing / num_draws < 1e-4


@each_row("options", [{}, {"temperature": 0.7}, *SETTINGS])
def test_a_sample_does_not_depend_on_the_batch(options):
    generation = GenerationConfiguration(**options)
    draw_of = torch.Generator().manual_seed(9)
    logits = (2.0 * torch.randn(30, 515, generator=draw_of)).bfloat16().float()
    seen = torch.rand(logits.shape, generator=draw_of) < 0.1
    uniform = torch.rand(30, dtype=torch.float64, generator=draw_of)
    together, logprobs = sample(logits, generation, uniform, seen=seen)
    turned, _ = sample(logits.flip(0), generation, uniform.flip(0), seen=seen.flip(0))
    for row in range(30):
        one = slice(row, row + 1)
        token, logprob = sample(logits[one], generation, uniform[one], seen=seen[one])
        assert int(together[row]) == int(token)
        assert float(logprobs[row]) == pytest.approx(float(logprob), abs=1e-5)

    assert together.flip(0).tolist() == turned.tolist()


@each_row("uniform", [0.0, 0.5, 1.0 - 2.0**-53])
@each_row("options", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_a_forbidden_token_is_never_sampled(uniform, options):
    size = 200
    logits = torch.zeros(3, size)
    logits[0, size - 1] = logits[1, 0] = logits[2, 64] = 20.0
    forbidden = torch.tensor([0, 64, size - 1])
    token, _ = sample(
        logits,
        GenerationConfiguration(**options),
        torch.full((3,), uniform, dtype=torch.float64),
        forbidden=forbidden,
    )

    assert not set(forbidden.tolist()) & set(token.tolist())


def test_logits_of_a_wide_range_draw_only_what_can_come():
    # Far below the largest logit a share rounds to zero: no draw may fall on such a token.
    logits = torch.full((4, 300), -1e4)
    logits[:, 130] = 0.0
    for uniform in (0.0, 1e-300, 0.5, 1.0 - 2.0**-53):
        token, logprob = sample(
            logits, GenerationConfiguration(), torch.full((4,), uniform, dtype=torch.float64)
        )
        assert [130] * 4 == token.tolist()
        assert [0.0] * 4 == logprob.tolist()
