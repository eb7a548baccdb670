import math
from inspect import unwrap

import pytest
import torch

from astra_core.errors import ShapeError
from astra_parts.algorithms import functional as fn


def test_ast_rewards_match_astra(cases):
    def score(text):
        return 0.9 if "bad" in text else 0.2

    for case in cases("astra_reward"):
        logprobs = torch.tensor(case["target_token_logps_of_probe"])
        turns = list(zip(case["probe"], case["response"], strict=True))
        actual = fn.ast_rewards(
            fn.sequence_probability(logprobs, torch.ones_like(logprobs).bool()),
            torch.tensor([score(probe + response) for probe, response in turns]),
            torch.tensor([score(response) for _, response in turns]),
            likelihood_weight=case["weights"]["ppl"],
            joint_weight=case["weights"]["combined"],
            response_weight=case["weights"]["defense"],
        )

        torch.testing.assert_close(torch.tensor(case["expected"]), actual)


def test_mean_logprob_tells_long_probes_apart_where_the_probability_cannot():
    """The defect A15: 0.0 for every probe of ordinary length."""
    fluent, odd = torch.full((1, 64), -2.6), torch.full((1, 64), -7.0)
    mask = torch.ones(1, 64).bool()

    assert torch.equal(fn.sequence_probability(odd, mask), torch.zeros(1))
    assert pytest.approx(-2.6) == fn.mean_logprob(fluent, mask).item()
    assert pytest.approx(-7.0) == fn.mean_logprob(odd, mask).item()


def test_excess_nll_costs_only_what_is_not_tolerated():
    logprobs = torch.tensor([[-2.0, -4.0, math.nan], [-1.0, -1.0, math.nan]])
    mask = torch.tensor([[True, True, False]] * 2)

    torch.testing.assert_close(
        torch.tensor([0.5, 0.0]), fn.excess_nll(logprobs, mask, tolerated=2.5)
    )


def test_a_probe_without_tokens_is_defined():
    nothing, none = torch.full((1, 3), math.nan), torch.zeros(1, 3).bool()

    assert fn.sequence_probability(nothing, none).item() == 1.0
    assert fn.mean_logprob(nothing, none).item() == 0.0
    assert fn.excess_nll(nothing, none, tolerated=2.0).item() == 0.0


def test_each_weight_counts_its_own_term():
    terms = torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([5.0])
    names = ("likelihood_weight", "joint_weight", "response_weight")
    for name, term in zip(names, terms, strict=True):
        weights = {**dict.fromkeys(names, 0.0), name: 1.0}
        assert term.item() == fn.ast_rewards(*terms, **weights).item()


def test_scores_of_another_batch_are_refused():
    two, one = torch.zeros(2), torch.zeros(1)
    with pytest.raises(ShapeError, match="response_scores must have the shape of likelihoods"):
        unwrap(fn.ast_rewards)(
            two, two, one, likelihood_weight=1.0, joint_weight=1.0, response_weight=1.0
        )
