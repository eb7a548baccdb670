import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.engine.steps.drawing import DecodingRules, draw_token
from astra_core.models.decoding import SHIFT, sample

NUMBERS = torch.Generator().manual_seed(0)
LOGITS = 3.0 * torch.randn(40, 90, generator=NUMBERS)
UNIFORM = torch.rand(40, dtype=torch.float64, generator=NUMBERS)
COUNT = torch.arange(40) % 4
SEEN = torch.rand(40, 90, generator=NUMBERS) < 0.2


@each_row(
    "options",
    [
        {},
        {"temperature": 0.5, "top_k": 7},
        {"top_p": 0.8, "repetition_penalty": 1.5},
        {"min_p": 0.02, "min_new_tokens": 2},
    ],
)
def test_a_token_is_the_one_that_sample_draws(options):
    generation = GenerationConfiguration(max_new_tokens=9, **options)
    ends, barred, spare = [1, 2], [3, 4, 5], 6
    rules = DecodingRules.on(torch.device("cpu"), (tuple(ends), tuple(barred), spare))
    found = draw_token(LOGITS.clone(), generation, UNIFORM, rules=rules, count=COUNT, seen=SEEN)

    for row, count in enumerate(COUNT.tolist()):
        forbidden = barred + (ends if count < generation.min_new_tokens else [])
        own = (LOGITS[row : row + 1], generation, UNIFORM[row : row + 1])
        seen = SEEN[row : row + 1]
        token, logprob = sample(*own, seen=seen, forbidden=torch.tensor(forbidden))
        if int(token) == spare:
            again = own[2] * SHIFT % 1.0
            token, logprob = sample(
                *own[:2], again, seen=seen, forbidden=torch.tensor([*forbidden, spare])
            )
        assert int(token) == int(found[0][row])
        torch.testing.assert_close(logprob[0], found[1][row])
