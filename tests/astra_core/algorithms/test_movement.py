import math

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.movement import (
    K1,
    K3,
    PROBES,
    is_readable,
    moved_means,
    movement_figures,
)
from astra_parts.testing import tiny_node


@each_row(
    "changes", [{"failure": "no answer"}, {"probe_logprobs": ()}, {"probe_mask": (False,) * 3}]
)
def test_a_probe_is_read_if_it_was_trained_and_its_likelihood_is_known(changes):
    assert is_readable(tiny_node(0.5))
    assert not is_readable(tiny_node(0.5, **changes))


def test_both_estimators_are_sums_over_the_trained_tokens_of_all_probes():
    before = torch.tensor([[-1.0, -2.0, -9.0], [-1.0, -1.0, -1.0]])
    now = torch.tensor([[-1.5, -1.0, 0.0], [-1.0, -1.0, -7.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])

    figures = movement_figures(now, before, mask, weight=4.0)

    # Schulman's k3 of before || now: r - 1 - log r with r = now / before.
    by_hand = sum(math.exp(log) - 1 - log for log in (-0.5, 1.0, 0.0))
    assert {
        PROBES: 2 / 4,
        K3: pytest.approx(by_hand / 4),
        K1: pytest.approx((0.5 - 1.0) / 4),
    } == figures


def test_k3_is_the_mean_of_the_exact_divergence():
    torch.manual_seed(0)
    logits = torch.randn(5)
    before = logits.log_softmax(-1)
    now = (logits + 0.5 * torch.randn(5)).log_softmax(-1)
    drawn = torch.multinomial(before.exp(), 200_000, replacement=True)
    exact = float((before.exp() * (before - now)).sum())
    rows = drawn[:, None]

    figures = movement_figures(now[rows], before[rows], torch.ones_like(rows).bool(), weight=1.0)

    means = moved_means(figures)
    assert means[K3] == pytest.approx(exact, rel=0.03)
    assert means[K1] == pytest.approx(exact, rel=0.03)


def test_a_window_has_the_mean_over_its_probes_whatever_its_batches_weigh():
    torch.manual_seed(0)
    before, now = -torch.rand(6, 4), -torch.rand(6, 4)
    mask = torch.rand(6, 4) > 0.3
    totals = {}
    for rows, weight in ((slice(0, 1), 7.0), (slice(1, 6), 3.0)):
        figures = movement_figures(now[rows], before[rows], mask[rows], weight=weight)
        for name, value in figures.items():
            totals[name] = totals.get(name, 0.0) + value * weight / 10.0

    whole = moved_means(movement_figures(now, before, mask, weight=2.0))
    assert moved_means({**totals, "loss": 3.0}) == pytest.approx({**whole, "loss": 3.0})


def test_every_agent_has_a_mean_of_its_own():
    figures = {f"{name}{K3}": 6.0 for name in ("", "opener/")}
    figures |= {f"{name}{PROBES}": count for name, count in (("", 3.0), ("opener/", 2.0))}

    means = moved_means(figures)

    assert (2.0, 3.0) == (means[K3], means[f"opener/{K3}"])
    assert PROBES not in means


def test_a_batch_that_weighs_nothing_says_nothing():
    nothing = torch.zeros(1, 2)

    assert {} == movement_figures(nothing, nothing, nothing.bool(), weight=0.0)
