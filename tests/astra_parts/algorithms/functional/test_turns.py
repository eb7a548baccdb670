from inspect import unwrap

import pytest
import torch
from hypothesis import given, settings, strategies as st

from astra_core.errors import ConfigurationError, DataError, ShapeError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=40, derandomize=True, deadline=None)


def estimate(rewards, values, mask=None, parents=None, final=None, **changes):
    values = torch.tensor(values, dtype=torch.float64)
    mask = torch.ones_like(values, dtype=torch.bool) if mask is None else torch.tensor(mask)
    parents = [-1] * len(values) if parents is None else parents
    final = [0.0] * len(values) if final is None else final
    options = {"discount": 1.0, "turn_discount": 0.5, "decay": 0.5, **changes}
    return fn.tree_gae(
        torch.tensor(rewards, dtype=torch.float64),
        torch.zeros_like(values),
        values,
        mask,
        torch.tensor(parents, dtype=torch.long),
        final_values=torch.tensor(final, dtype=torch.float64),
        **options,
    )


def test_tree_gae_of_one_turn_by_hand():
    # Last token: 1 - 0.5 = 0.5. First: (0.5 - 0.25) + 1 * 0.5 * 0.5 = 0.5.
    advantages, returns = estimate([1.0], [[0.25, 0.5]])

    torch.testing.assert_close(torch.tensor([[0.5, 0.5]]).double(), advantages)
    torch.testing.assert_close(torch.tensor([[0.75, 1.0]]).double(), returns)


def test_the_next_turns_count_by_their_mean():
    # Children: advantages 1 and 3, values 0. Parent: 0 + 0.5 * (0 + 0.5 * mean(1, 3)) = 0.5.
    advantages, _ = estimate([0.0, 1.0, 3.0], [[0.0], [0.0], [0.0]], parents=[-1, 0, 0])

    assert [0.5, 1.0, 3.0] == advantages[:, 0].tolist()


def test_a_cut_conversation_has_a_future_and_an_ended_one_has_none():
    cut, _ = estimate([1.0], [[0.0]], final=[4.0])
    ended, _ = estimate([1.0], [[0.0]], final=[0.0])

    # 1 + 0.5 * 4 against 1.
    assert (3.0, 1.0) == (float(cut), float(ended))


def test_the_final_value_of_a_turn_that_others_follow_is_not_read():
    with_it, _ = estimate([1.0, 0.0], [[0.0], [0.0]], parents=[-1, 0], final=[9.0, 0.0])
    without, _ = estimate([1.0, 0.0], [[0.0], [0.0]], parents=[-1, 0], final=[0.0, 0.0])

    assert torch.equal(with_it, without)


def test_a_turn_without_tokens_passes_on_what_it_was_worth():
    mask = [[True], [False], [True]]
    advantages, returns = estimate(
        [0.0, 1.0, 2.0], [[0.0], [7.0], [0.0]], mask=mask, parents=[-1, 0, 1]
    )

    # Last turn 2, entered with 0 + 0.5 * 2 = 1; middle 1 + 0.5 * 1 = 1.5; first 0.5 * 1.5.
    assert [0.75, 0.0, 2.0] == advantages[:, 0].tolist()
    assert 0.0 == float(returns[1, 0])


@LAWS
@given(
    st.integers(1, 4), st.integers(1, 3), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers()
)
def test_along_a_path_tree_gae_is_token_gae_of_the_whole_path(turns, width, discount, decay, seed):
    draw = torch.Generator().manual_seed(seed % 1000)
    values = torch.randn(turns, width, generator=draw, dtype=torch.float64)
    token_rewards = torch.randn(turns, width, generator=draw, dtype=torch.float64)
    turn_rewards = torch.randn(turns, generator=draw, dtype=torch.float64)
    lengths = torch.randint(1, width + 1, (turns,), generator=draw)
    mask = torch.arange(width) < lengths[:, None]
    final = torch.randn(turns, generator=draw, dtype=torch.float64)
    advantages, returns = fn.tree_gae(
        turn_rewards,
        token_rewards,
        values,
        mask,
        torch.arange(turns) - 1,
        final_values=final,
        discount=discount,
        turn_discount=discount,
        decay=decay,
    )
    rewards = token_rewards.clone()
    rewards[torch.arange(turns), lengths - 1] += turn_rewards
    whole = fn.token_gae(
        rewards.reshape(1, -1),
        values.reshape(1, -1),
        mask.reshape(1, -1),
        discount=discount,
        decay=decay,
        final_values=final[-1:],
    )

    torch.testing.assert_close(whole[0].reshape(turns, width), advantages)
    torch.testing.assert_close(whole[1].reshape(turns, width), returns)


def test_the_order_of_the_turns_does_not_matter():
    forward, _ = estimate([1.0, 2.0, 3.0], [[0.1], [0.2], [0.3]], parents=[-1, 0, 1])
    backward, _ = estimate([3.0, 2.0, 1.0], [[0.3], [0.2], [0.1]], parents=[1, 2, -1])

    torch.testing.assert_close(forward, backward.flip(0))


def test_no_turns_give_no_advantages():
    nothing = torch.zeros(0)
    advantages, returns = fn.tree_gae(
        nothing,
        torch.zeros(0, 3),
        torch.zeros(0, 3),
        torch.zeros(0, 3, dtype=torch.bool),
        nothing.long(),
        final_values=nothing,
        discount=1.0,
        turn_discount=1.0,
        decay=1.0,
    )

    assert (0, 3) == advantages.shape == returns.shape


def test_advantages_carry_no_gradient():
    values = torch.zeros(1, 2, requires_grad=True)
    advantages, returns = fn.tree_gae(
        torch.ones(1),
        torch.zeros(1, 2),
        values,
        torch.ones(1, 2, dtype=torch.bool),
        torch.tensor([-1]),
        final_values=torch.zeros(1),
        discount=1.0,
        turn_discount=1.0,
        decay=1.0,
    )

    assert not advantages.requires_grad
    assert not returns.requires_grad


def test_bad_arguments_are_refused():
    with pytest.raises(ConfigurationError, match="turn_discount"):
        estimate([1.0], [[0.0]], turn_discount=1.5)
    with pytest.raises(ConfigurationError, match="decay"):
        estimate([1.0], [[0.0]], decay=-0.5)
    with pytest.raises(DataError, match="cycle"):
        estimate([1.0, 1.0], [[0.0], [0.0]], parents=[1, 0])


def test_rewards_of_another_number_of_turns_are_refused():
    one = torch.zeros(1, 2)
    with pytest.raises(ShapeError, match="rows"):
        unwrap(fn.tree_gae)(
            torch.zeros(2),
            one,
            one,
            one.bool(),
            torch.tensor([-1, -1]),
            final_values=torch.zeros(2),
            discount=1.0,
            turn_discount=1.0,
            decay=1.0,
        )
