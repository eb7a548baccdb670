import math

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=30, derandomize=True, deadline=None)
RATIOS = st.floats(-30, 30)


def losses_of(name, chosen, rejected, **options):
    smoothing = {"label_smoothing": 0.1} if name in {"cdpo_losses", "robust_dpo_losses"} else {}
    return getattr(core if name == "dpo_losses" else fn, name)(
        chosen, rejected, **{"beta": 0.1, **smoothing, **options}
    )


PAIR_LOSSES = ["dpo_losses", "cdpo_losses", "robust_dpo_losses", "ipo_losses", "hinge_losses"]


def test_dpo_and_ipo_match_astra_in_loss_gradient_and_metrics(cases):
    for case in cases("astra_dpo_ipo_loss"):
        chosen_logps = torch.tensor(case["policy_chosen_token_logps"], requires_grad=True)
        rejected_logps = torch.tensor(case["policy_rejected_token_logps"], requires_grad=True)
        mask = torch.ones(chosen_logps.shape, dtype=torch.bool)
        chosen = core.sequence_log_ratios(
            chosen_logps, torch.tensor(case["ref_chosen_token_logps"]), mask
        )
        rejected = core.sequence_log_ratios(
            rejected_logps, torch.tensor(case["ref_rejected_token_logps"]), mask
        )
        losses = losses_of(
            f"{case['algorithm'].lower()}_losses", chosen, rejected, beta=case["beta"]
        )
        losses.mean().backward()
        metrics = core.preference_metrics(chosen, rejected, beta=case["beta"])

        def close(expected, actual):
            torch.testing.assert_close(torch.tensor(expected), actual, rtol=1e-5, atol=1e-6)

        close(case["expected_loss"], losses.mean())
        close(case["expected_grad_policy_chosen"], chosen_logps.grad)
        close(case["expected_grad_policy_rejected"], rejected_logps.grad)
        expected = case["expected_metrics"]
        close(expected["reward/chosen_rewards"], metrics.chosen_rewards.mean())
        close(expected["reward/rejected_rewards"], metrics.rejected_rewards.mean())
        close(expected["reward/reward_margin"], metrics.margins.mean())
        close(expected["reward/reward_accuracies"], metrics.accuracies.mean())
        close(expected["policy/logprobs_chosen"], chosen_logps.detach().sum(-1).mean())


# Derivatives in h of each loss at beta = 0.5, label smoothing 0.1, from the formulas.
def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@each_row(
    ("name", "slope"),
    [
        ("dpo_losses", lambda h: -0.5 * sigmoid(-0.5 * h)),
        ("cdpo_losses", lambda h: -0.45 * sigmoid(-0.5 * h) + 0.05 * sigmoid(0.5 * h)),
        (
            "robust_dpo_losses",
            lambda h: (-0.45 * sigmoid(-0.5 * h) - 0.05 * sigmoid(0.5 * h)) / 0.8,
        ),
        ("ipo_losses", lambda h: 2 * (h - 1)),
        ("hinge_losses", lambda h: -0.5 if h < 2 else 0.0),
    ],
)
@each_row("margin", [-4.0, 0.5, 3.0])
def test_pair_losses_have_the_closed_form_gradient(name, slope, margin):
    chosen = torch.tensor([margin + 1.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    losses_of(name, chosen, rejected, beta=0.5).sum().backward()

    assert pytest.approx(slope(margin)) == chosen.grad.item()
    assert pytest.approx(-slope(margin)) == rejected.grad.item()


@each_row("name", PAIR_LOSSES)
def test_pair_losses_agree_with_finite_differences(name):
    chosen = torch.tensor([0.3, -2.0, 5.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([1.1, 0.4, -3.0], dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda a, b: losses_of(name, a, b), (chosen, rejected))


@each_row("name", ["cdpo_losses", "robust_dpo_losses"])
def test_without_label_smoothing_they_are_dpo(name):
    chosen, rejected = torch.tensor([0.3, -2.0]), torch.tensor([1.1, 0.4])

    torch.testing.assert_close(
        core.dpo_losses(chosen, rejected, beta=0.3),
        losses_of(name, chosen, rejected, beta=0.3, label_smoothing=0.0),
    )


def test_robust_dpo_is_unbiased_under_flipped_labels():
    # (1 - e) of the pairs as they are and e of them swapped must average to the clean loss.
    chosen, rejected = torch.tensor([2.0, -1.0]).double(), torch.tensor([0.5, 0.5]).double()
    straight = losses_of("robust_dpo_losses", chosen, rejected, label_smoothing=0.2)
    flipped = losses_of("robust_dpo_losses", rejected, chosen, label_smoothing=0.2)

    torch.testing.assert_close(
        core.dpo_losses(chosen, rejected, beta=0.1), 0.8 * straight + 0.2 * flipped
    )


def test_cdpo_is_least_where_it_believes_the_label():
    # sigmoid(beta h) = 0.9  <=>  h = log(9) / beta
    margin = torch.tensor([math.log(9) / 0.1], dtype=torch.float64, requires_grad=True)
    fn.cdpo_losses(margin, torch.zeros(1).double(), beta=0.1, label_smoothing=0.1).sum().backward()

    assert pytest.approx(0.0, abs=1e-12) == margin.grad.item()


@LAWS
@given(chosen=RATIOS, rejected=RATIOS, shift=RATIOS, name=st.sampled_from(PAIR_LOSSES))
def test_pair_losses_see_only_the_margin(chosen, rejected, shift, name):
    pair = torch.tensor([chosen, rejected], dtype=torch.float64)
    shifted = pair + shift

    torch.testing.assert_close(
        losses_of(name, pair[:1], pair[1:]), losses_of(name, shifted[:1], shifted[1:])
    )


@LAWS
@given(pairs=st.lists(st.tuples(RATIOS, RATIOS), max_size=6), name=st.sampled_from(PAIR_LOSSES))
def test_pair_losses_are_per_pair_so_their_sum_ignores_order_and_split(pairs, name):
    both = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)
    whole = losses_of(name, both[:, 0], both[:, 1])
    back = both.flip(0)
    one_by_one = [losses_of(name, row[:1], row[1:]) for row in back]

    assert len(pairs) == len(whole)
    torch.testing.assert_close(whole.sum(), sum(one_by_one, torch.zeros(1).double()).sum())


@each_row("name", PAIR_LOSSES)
def test_pair_losses_stay_finite_far_out(name):
    far = torch.tensor([1e4, -1e4], requires_grad=True)
    losses = losses_of(name, far, -far)
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(far.grad).all()


def test_length_normalised_ipo_is_the_loss_of_trl():
    # s_w / len_w = 0.6 / 3 = 0.2, s_l / len_l = -0.1 / 1, target 1 / (2 * 0.5) = 1: (0.3 - 1)^2
    chosen = core.sequence_log_ratios(
        torch.tensor([[0.1, 0.2, 0.3]]), torch.zeros(1, 3), torch.ones(1, 3).bool(),
        length_normalised=True,
    )  # fmt: skip
    rejected = core.sequence_log_ratios(
        torch.tensor([[-0.1, 7.0, 7.0]]), torch.zeros(1, 3), torch.tensor([[True, False, False]]),
        length_normalised=True,
    )  # fmt: skip

    assert pytest.approx(0.49) == fn.ipo_losses(chosen, rejected, beta=0.5).item()


@each_row("name", PAIR_LOSSES)
@each_row("beta", [0.0, -1.0, math.nan])
def test_pair_losses_refuse_a_beta_that_pulls_nowhere(name, beta):
    with pytest.raises(ConfigurationError, match="beta must be positive"):
        losses_of(name, torch.zeros(1), torch.zeros(1), beta=beta)


@each_row("name", ["cdpo_losses", "robust_dpo_losses"])
@each_row("label_smoothing", [0.5, -0.1])
def test_label_smoothing_of_one_half_is_refused(name, label_smoothing):
    with pytest.raises(ConfigurationError) as caught:
        losses_of(name, torch.zeros(1), torch.zeros(1), label_smoothing=label_smoothing)
    assert (
        f"label_smoothing must lie in [0, 0.5), got {label_smoothing}; "
        "at one half a label says nothing"
    ) == str(caught.value)


def test_a_balance_loss_is_the_square_of_margin_less_gap_over_temperature():
    chosen, rejected, gaps = torch.tensor([[1.0, -2.0], [0.5, 1.0], [0.1, -0.6]])

    # 1 - 0.5 - 0.1 / 0.2 and -2 - 1 + 0.6 / 0.2, both zero; then at 0.1 -0.5 and 3.
    for temperature, squares in ((0.2, [0.0, 0.0]), (0.1, [0.25, 9.0])):
        found = fn.balance_losses(chosen, rejected, gaps, temperature=temperature)
        torch.testing.assert_close(torch.tensor(squares), found, atol=1e-5, rtol=0)
    with pytest.raises(ConfigurationError, match=r"positive, got 0\.0; 0\.1 makes"):
        fn.balance_losses(chosen, rejected, gaps, temperature=0.0)
