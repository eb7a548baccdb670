import math

import numpy as np
import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=30, derandomize=True, deadline=None)
RATIOS = st.floats(-30, 30)
BETA, FLIPPED = 0.3, 0.1


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    """Minus the log of sigmoid(-x)."""
    return np.log1p(np.exp(x))


def bernoulli_kl(share, other):
    return share * np.log(share / other) + (1 - share) * np.log((1 - share) / (1 - other))


def mixed(x):
    share = sigmoid(x / 0.05)
    return (1 - share) * softplus(-x) + share * np.exp(-x)


# From scaled log-ratios of the chosen and the rejected probe, in numpy, as the papers have them.
FORMULAS = {
    "exo_losses": lambda c, r: bernoulli_kl(sigmoid(c - r), 1 - FLIPPED),
    "discopop_losses": lambda c, r: mixed(c - r),
    "nca_losses": lambda c, r: softplus(-c) + (softplus(c) + softplus(r)) / 2,
    "bco_losses": lambda c, r: softplus(-c) + softplus(r),
    "sppo_losses": lambda c, r: (c / BETA - 1 / (2 * BETA)) ** 2 + (r / BETA + 1 / (2 * BETA)) ** 2,
    "apo_zero_losses": lambda c, r: 1 - sigmoid(c) + sigmoid(r),
    "apo_down_losses": lambda c, r: sigmoid(c) + 1 - sigmoid(c - r),
}
OF_A_MARGIN = ["exo_losses", "discopop_losses"]
POINTS = [(0.0, 0.0), (2.5, -1.0), (-3.0, 4.0), (0.4, 0.1), (-6.0, -7.0), (8.0, 9.0)]


def losses_of(name, chosen, rejected, **options):
    smoothing = {"label_smoothing": FLIPPED} if name == "exo_losses" else {}
    return getattr(fn, name)(chosen, rejected, **{"beta": BETA, **smoothing, **options})


def both(*pairs):
    chosen, rejected = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
    return chosen.requires_grad_(), rejected.requires_grad_()


@each_row("name", FORMULAS)
def test_a_loss_is_its_papers_formula(name):
    chosen, rejected = np.array(POINTS).T

    expected = FORMULAS[name](BETA * chosen, BETA * rejected)
    assert expected == pytest.approx(losses_of(name, *both(*POINTS)).detach().numpy(), rel=1e-12)


@each_row("name", FORMULAS)
def test_a_gradient_is_that_of_the_formula_by_finite_differences(name):
    chosen, rejected = both(*POINTS)
    losses_of(name, chosen, rejected).sum().backward()
    step = 1e-6
    for (c, r), of_chosen, of_rejected in zip(
        POINTS, chosen.grad.tolist(), rejected.grad.tolist(), strict=True
    ):
        formula = FORMULAS[name]
        slopes = (
            formula(BETA * (c + step), BETA * r) - formula(BETA * (c - step), BETA * r),
            formula(BETA * c, BETA * (r + step)) - formula(BETA * c, BETA * (r - step)),
        )
        assert slopes[0] / (2 * step) == pytest.approx(of_chosen, rel=1e-5, abs=1e-7)
        assert slopes[1] / (2 * step) == pytest.approx(of_rejected, rel=1e-5, abs=1e-7)


# With both at the reference a sigmoid is 1/2.
@each_row(
    ("name", "expected"),
    [
        ("exo_losses", 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)),
        ("discopop_losses", 0.5 * math.log(2) + 0.5),
        ("nca_losses", 2 * math.log(2)),
        ("bco_losses", 2 * math.log(2)),
        ("sppo_losses", 2 * (0.5 / BETA) ** 2),
        ("apo_zero_losses", 1.0),
        ("apo_down_losses", 1.0),
    ],
)
def test_where_the_attacker_is_the_reference_a_loss_is_known(name, expected):
    assert expected == pytest.approx(losses_of(name, *both((0.0, 0.0))).item())


def test_exo_rests_where_it_believes_the_label():
    # sigmoid(beta h) = 0.9  <=>  h = log(9) / beta
    chosen, rejected = both((math.log(9) / BETA, 0.0))
    losses = losses_of("exo_losses", chosen, rejected)
    losses.sum().backward()

    assert 0.0 == pytest.approx(losses.item(), abs=1e-12)
    assert 0.0 == pytest.approx(chosen.grad.item(), abs=1e-12)


def test_sppo_rests_where_both_have_reached_their_goals():
    assert 0.0 == losses_of("sppo_losses", *both((0.5 / BETA, -0.5 / BETA))).item()


@LAWS
@given(chosen=RATIOS, rejected=RATIOS)
def test_bco_bounds_dpo_from_above(chosen, rejected):
    pair = both((chosen, rejected))

    assert losses_of("bco_losses", *pair).item() >= core.dpo_losses(*pair, beta=BETA).item() - 1e-12


def test_discopop_is_dpo_for_a_wrong_pair_and_exponential_for_a_right_one():
    wrong, right = both((-10.0, 0.0)), both((10.0, 0.0))

    dpo = core.dpo_losses(*wrong, beta=BETA).item()
    assert dpo == pytest.approx(losses_of("discopop_losses", *wrong).item())
    assert math.exp(-3.0) == pytest.approx(losses_of("discopop_losses", *right).item())
    # Near the temperature, 0.05, the two are mixed.
    share = sigmoid(0.06 / 0.05)
    found = losses_of("discopop_losses", *both((0.06 / BETA, 0.0))).item()
    expected = share * math.exp(-0.06) + (1 - share) * softplus(-0.06)
    assert expected == pytest.approx(found, rel=1e-12)


# At the reference the slope of a sigmoid is 1/4; a minus raises the probability.
@each_row(
    ("name", "slopes"),
    [
        ("bco_losses", (-BETA / 2, BETA / 2)),
        ("apo_zero_losses", (-BETA / 4, BETA / 4)),
        # What the margin asks of the chosen one and what the anchor asks cancel.
        ("apo_down_losses", (0.0, BETA / 4)),
    ],
)
def test_at_the_reference_the_sides_are_pulled_apart(name, slopes):
    chosen, rejected = both((0.0, 0.0))
    losses_of(name, chosen, rejected).sum().backward()

    assert slopes == pytest.approx((chosen.grad.item(), rejected.grad.item()))


def test_apo_down_lowers_a_chosen_probe_that_leads_already():
    chosen, rejected = both((0.0, -20.0))
    losses_of("apo_down_losses", chosen, rejected).sum().backward()

    assert chosen.grad.item() > 0


def test_nca_keeps_the_chosen_probe_from_becoming_less_likely_where_dpo_does_not_care():
    # The margin is settled, but both are far below the reference.
    chosen, rejected = both((-20.0, -80.0))
    losses_of("nca_losses", chosen, rejected).sum().backward()
    nca, chosen.grad = chosen.grad.item(), None
    core.dpo_losses(chosen, rejected, beta=BETA).sum().backward()

    # sigmoid(20 beta) - sigmoid(-20 beta) / 2, times beta: hardly less than beta itself.
    assert -BETA == pytest.approx(nca, rel=0.01)
    assert abs(chosen.grad.item()) < 1e-6


@LAWS
@given(chosen=RATIOS, rejected=RATIOS, shift=RATIOS, name=st.sampled_from(OF_A_MARGIN))
def test_losses_of_a_margin_see_only_the_margin(chosen, rejected, shift, name):
    torch.testing.assert_close(
        losses_of(name, *both((chosen, rejected))),
        losses_of(name, *both((chosen + shift, rejected + shift))),
    )


@each_row("name", sorted(set(FORMULAS) - set(OF_A_MARGIN)))
def test_losses_of_sides_see_where_the_margin_is(name):
    here, there = losses_of(name, *both((1.0, 0.0))), losses_of(name, *both((2.0, 1.0)))

    assert here.item() != pytest.approx(there.item(), rel=1e-3)


@LAWS
@given(
    pairs=st.lists(st.tuples(RATIOS, RATIOS), min_size=1, max_size=6),
    name=st.sampled_from(sorted(FORMULAS)),
)
def test_losses_are_per_pair_so_their_sum_ignores_order_and_split(pairs, name):
    whole = losses_of(name, *both(*pairs))
    one_by_one = [losses_of(name, *both(pair)) for pair in reversed(pairs)]

    assert len(pairs) == len(whole)
    torch.testing.assert_close(whole.sum(), torch.cat(one_by_one).sum())


@each_row("name", FORMULAS)
def test_losses_stay_finite_far_out_in_float32_too(name):
    far = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    losses = losses_of(name, far, -far)
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(far.grad).all()


@each_row("name", FORMULAS)
@each_row("beta", [0.0, -1.0, math.nan])
def test_a_beta_that_pulls_nowhere_is_refused(name, beta):
    with pytest.raises(ConfigurationError, match="beta must be positive"):
        losses_of(name, torch.zeros(1), torch.zeros(1), beta=beta)


@each_row(
    ("share", "message"),
    [
        (0.0, "label_smoothing must be above 0 for exo, got 0; 0.001 is usual"),
        (0.5, "label_smoothing must lie in [0, 0.5), got 0.5; at one half a label says nothing"),
        (-0.1, "label_smoothing must lie in [0, 0.5), got -0.1; at one half a label says nothing"),
    ],
)
def test_exo_needs_a_share_of_flipped_pairs(share, message):
    with pytest.raises(ConfigurationError) as caught:
        losses_of("exo_losses", torch.zeros(1), torch.zeros(1), label_smoothing=share)

    assert message == str(caught.value)


def test_aot_compares_the_sides_rank_by_rank():
    chosen, rejected = both((2.5, -1.0), (-3.0, 4.0), (0.4, 0.1))
    found = losses_of("aot_losses", chosen, rejected)
    expected = softplus(-BETA * (np.array([-3.0, 0.4, 2.5]) - np.array([-1.0, 0.1, 4.0])))

    np.testing.assert_allclose(expected, found.detach().numpy(), rtol=1e-12)
    found.sum().backward()
    # The largest of each side meet, though they are of two pairs.
    pull = BETA * sigmoid(BETA * 1.5)
    assert [-pull, pull] == [pytest.approx(float(g)) for g in (chosen.grad[0], rejected.grad[1])]
    with pytest.raises(ConfigurationError, match="beta must be positive"):
        losses_of("aot_losses", chosen, rejected, beta=0.0)
