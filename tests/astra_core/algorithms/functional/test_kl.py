import math

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as fn
from astra_core.algorithms.functional import kl as unchecked
from astra_core.errors import ConfigurationError, ShapeError

LAWS = settings(max_examples=50, derandomize=True, deadline=None)
NEXRL_NAMES = {"kl": "k1", "low_var_kl": "k3"}


def estimate(log_ratio, estimator):
    logprobs = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    kl = fn.kl_estimates(logprobs, torch.zeros(1).double(), estimator=estimator)
    kl.sum().backward()
    return kl.item(), logprobs.grad.item()


def test_kl_estimates_match_nexrl(cases):
    for case in cases("nexrl_kl_penalty"):
        name = NEXRL_NAMES.get(case["type"], case["type"])
        pair = torch.tensor(case["logprob"]), torch.tensor(case["ref_logprob"])
        if "expected_error" in case:
            with pytest.raises(ConfigurationError, match="got 'nope'; k3 is usual"):
                unchecked.kl_estimates(*pair, estimator=name)
            continue
        actual = fn.kl_estimates(*pair, estimator=name)

        torch.testing.assert_close(torch.tensor(case["expected"]), actual, rtol=1e-5, atol=1e-6)


@LAWS
@given(d=st.floats(-4, 4))
def test_kl_estimates_and_their_gradients_are_the_closed_forms(d):
    # d = log attacker - log reference, inside the limits of k3 (exp(4) - 5 = 49 is not: value held)
    assert pytest.approx((d, 1.0)) == estimate(d, "k1")
    assert pytest.approx((d * d / 2, d)) == estimate(d, "k2")
    assert pytest.approx((abs(d), math.copysign(1, d) if d else 0.0)) == estimate(d, "abs")
    expected = min(math.expm1(-d) + d, 10.0), -math.expm1(-d)
    assert pytest.approx(expected, abs=1e-12) == estimate(d, "k3")


@each_row(
    ("d", "value", "slope"),
    [(-100.0, 10.0, 1 - math.exp(5)), (100.0, math.exp(-5) + 4, 1 - math.exp(-5))],
)
def test_k3_of_a_token_that_ran_off_is_bounded_and_still_pulled_back(d, value, slope):
    """A plain clamp has no gradient there, so the token would be free (TRL issue 3015)."""
    assert pytest.approx((value, slope)) == estimate(d, "k3")


@LAWS
@given(d=st.floats(-50, 50), estimator=st.sampled_from(["k2", "k3", "abs", "mse"]))
def test_kl_estimates_but_k1_are_never_negative(d, estimator):
    assert estimate(d, estimator)[0] >= 0


def test_k1_and_k3_average_to_the_divergence():
    # Sum over the vocabulary of p * estimate is KL(p || q) exactly, not only in the limit.
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    divergence = (p * (p / q).log()).sum().item()

    for estimator in ("k1", "k3"):
        estimates = fn.kl_estimates(p.log(), q.log(), estimator=estimator)
        assert pytest.approx(divergence) == (p * estimates).sum().item()


def test_kl_does_not_train_the_reference():
    logprobs, reference = (
        torch.ones(1, 2, requires_grad=True),
        torch.zeros(1, 2, requires_grad=True),
    )
    kl = fn.kl_estimates(logprobs, reference, estimator="k3")
    kl.sum().backward()

    assert reference.grad is None


def test_kl_of_unequal_shapes_is_refused():
    with pytest.raises(ShapeError, match="reference_logprobs must have the shape"):
        unchecked.kl_estimates(torch.zeros(2, 3), torch.zeros(2, 1), estimator="k1")
