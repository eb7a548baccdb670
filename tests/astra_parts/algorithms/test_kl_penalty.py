import math
from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError
from astra_parts.algorithms.kl_penalty import KLOptions, KLPenalty
from astra_parts.testing import tiny_graph, tiny_node


def penalty(**options):
    return KLPenalty(KLOptions.read(options, where="options"))


def node_with_kl(nats, **changes):
    """A probe of one token whose log-ratio to the reference is ``nats``."""
    return tiny_node(
        1.0, probe_ids=(2,), probe_logprobs=(-1.0,), reference_logprobs=(-1.0 - nats,), **changes
    )


def test_no_penalty_leaves_reward_and_loss_alone():
    free = penalty()

    assert 1.0 == free.reward(node_with_kl(3.0))
    assert free.losses(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1)) is None
    assert {} == free.remember([tiny_graph(node_with_kl(3.0))]) == free.state()


# d = 2: k1 = 2, k2 = 2, k3 = exp(-2) + 2 - 1.
@each_row(("estimator", "kl"), [("k1", 2.0), ("k2", 2.0), ("k3", 1.1353353)])
def test_in_the_reward_a_probe_pays_for_its_kl_at_sampling_time(estimator, kl):
    priced = penalty(kl="reward", kl_estimator=estimator, kl_coefficient=0.5)

    assert 1.0 - 0.5 * kl == pytest.approx(priced.reward(node_with_kl(2.0)))
    assert priced.losses(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1)) is None


@each_row(
    ("options", "line"),
    [
        ({"kl_coefficient": 0.3}, "kl_coefficient must be left out when kl is 'none'"),
        ({"kl_estimator": "k1"}, "kl_estimator must be left out when kl is 'none'"),
        ({"kl": "loss", "kl_target_nats": 1.0}, "kl_target_nats must be left out when kl_control"),
        (
            {"kl": "loss", "kl_control": "stepped", "kl_target_nats": 1.0, "kl_horizon": 5.0},
            "kl_horizon must be left out when kl_control is 'stepped'",
        ),
    ],
)
def test_an_option_that_nothing_reads_is_refused(options, line):
    with pytest.raises(ConfigurationError, match=line):
        penalty(**options)


def test_tokens_that_are_not_trained_cost_nothing():
    priced = penalty(kl="reward", kl_estimator="k1", kl_coefficient=1.0)
    node = tiny_node(1.0, probe_mask=(True, False, True))

    # tiny_node's log-ratio is 0.5 per token.
    assert [0.5, 0.0, 0.5] == priced.token_costs(node)


def test_in_the_loss_the_kl_is_differentiated():
    priced = penalty(kl="loss", kl_estimator="k2", kl_coefficient=0.5)
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    priced.losses(logprobs, torch.tensor([[-3.0]]), torch.tensor([[-9.0]])).sum().backward()

    # 0.5 * d^2 / 2 has the gradient 0.5 * d.
    assert 1.0 == float(logprobs.grad)
    assert 1.0 == priced.reward(node_with_kl(2.0))


@each_row(
    ("control", "kl", "expected"),
    # Proportional: the error is held within 20 %, times 2 probes of 10. Stepped: factor 2.
    [
        ("proportional", 2.0, 0.5 * (1 + 0.2 * 2 / 10)),
        ("proportional", 0.5, 0.5 * (1 - 0.2 * 2 / 10)),
        ("proportional", 1.1, 0.5 * (1 + 0.1 * 2 / 10)),
        ("stepped", 2.0, 1.0),
        ("stepped", 0.5, 0.25),
        ("stepped", 1.1, 0.5),
    ],
)
def test_the_coefficient_follows_the_kl(control, kl, expected):
    horizon = {"kl_horizon": 10.0} if control == "proportional" else {}
    priced = penalty(
        kl="loss", kl_coefficient=0.5, kl_control=control, kl_target_nats=1.0, **horizon
    )
    figures = priced.remember([tiny_graph(node_with_kl(kl), node_with_kl(kl))])

    assert expected == pytest.approx(figures["kl_coefficient"])
    assert expected == pytest.approx(priced.coefficient)


def test_a_short_horizon_cannot_turn_the_sign():
    priced = penalty(
        kl="loss", kl_coefficient=0.5, kl_control="proportional", kl_target_nats=9.0, kl_horizon=1.0
    )
    priced.remember([tiny_graph(*[node_with_kl(0.1)] * 50)])

    assert 0.4 == pytest.approx(priced.coefficient)


def test_an_experience_without_turns_moves_nothing():
    priced = penalty(kl="loss", kl_control="stepped", kl_target_nats=1.0)

    assert {"kl_coefficient": 0.05} == priced.remember([tiny_graph()])


def test_the_coefficient_survives_a_checkpoint_to_the_last_bit():
    options = {"kl": "loss", "kl_control": "proportional", "kl_target_nats": 0.3}
    priced, resumed = penalty(**options), penalty(**options)
    priced.remember([tiny_graph(node_with_kl(0.7))])
    resumed.load_state(priced.state())

    assert priced.coefficient == resumed.coefficient != 0.05


def test_a_moving_coefficient_needs_a_target():
    with pytest.raises(ConfigurationError, match="kl_target_nats"):
        penalty(kl="loss", kl_control="stepped")


def test_a_reference_that_was_not_computed_is_an_error():
    with pytest.raises(DataError, match="must hold 3 reference log-probabilities, got 0"):
        penalty(kl="reward").reward(tiny_node(1.0, reference_logprobs=()))


def test_weighted_by_the_ratio_a_token_that_became_likelier_costs_more():
    options = {"kl": "loss", "kl_estimator": "k1", "kl_coefficient": 0.5}
    weighted = penalty(kl_importance_weighted=True, **options)
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    losses = weighted.losses(
        logprobs, torch.tensor([[-3.0]]), torch.tensor([[-1.0 - math.log(4.0)]])
    )
    losses.sum().backward()

    # Ratio 4, d = 2: 0.5 * 4 * 2, and the gradient of r d is r (d + 1).
    assert 4.0 == pytest.approx(losses.item())
    assert 0.5 * 4.0 * (2.0 + 1.0) == pytest.approx(logprobs.grad.item())


@each_row("options", [{}, {"kl": "reward"}, {"kl": "loss", "kl_estimator": "k2"}])
def test_a_weight_without_a_kl_that_it_makes_unbiased_is_refused(options):
    with pytest.raises(ConfigurationError, match="kl_importance_weighted must be false") as caught:
        penalty(kl_importance_weighted=True, **options)

    assert "\n" not in str(caught.value)


@each_row(("reward", "expected"), [(3.0, 0.5), (-3.0, -0.5), (0.2, 0.2), (0.5, 0.5), (-0.5, -0.5)])
def test_a_reward_is_held_before_the_kl_is_taken_from_it(reward, expected):
    node = replace(node_with_kl(2.0), reward=reward)
    options = {"kl": "reward", "kl_estimator": "k1", "kl_coefficient": 0.5}

    assert (expected, [1.0]) == penalty(clip_reward=0.5, **options).account(node)
    assert expected - 1.0 == penalty(clip_reward=0.5, **options).reward(node)
    assert (reward, [0.0]) == penalty().account(node)


def test_a_reward_that_is_no_number_stays_none_where_it_is_held():
    node = replace(node_with_kl(2.0), reward=math.nan)

    assert math.isnan(penalty(clip_reward=0.5).account(node)[0])


def test_the_coefficient_does_not_follow_a_kl_that_is_no_number():
    priced = penalty(kl="loss", kl_control="proportional", kl_target_nats=1.0)
    with pytest.raises(DataError, match="kl must be finite, got inf"):
        priced.remember([tiny_graph(node_with_kl(math.inf))])

    assert 0.05 == priced.coefficient
