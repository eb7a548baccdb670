from functools import cache
from types import SimpleNamespace

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.credit import CreditedTurn
from astra_parts.algorithms.policy_batch import PolicyStep, pad_lists, policy_batch, policy_steps
from astra_parts.testing import tiny_node, tiny_system


@cache
def shared_system():
    return tiny_system()


LONG = tiny_node(1.0, probe_logprobs=(-1.0, -2.0, -3.0), reference_logprobs=(-4.0, -5.0, -6.0))
SHORT = tiny_node(
    0.0, probe_ids=(6, 0), context_ids=(5, 0), probe_mask=(True, False), reference_logprobs=()
)


def test_lists_are_filled_up_with_zeros_on_the_right():
    assert [[1.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0] * 3] == pad_lists(
        [(1.0, 2.0), (3.0,), ()], 3
    ).tolist()
    assert (0, 3) == tuple(pad_lists([], 3).shape)
    assert torch.float32 == pad_lists([(1, 2)], 2).dtype


def test_a_step_is_a_probe_and_its_advantage():
    turns = [CreditedTurn(LONG, 0, 0.5), CreditedTurn(SHORT, 0, 0.1)]

    assert [PolicyStep(LONG, 2.0), PolicyStep(SHORT, -1.0)] == policy_steps(
        turns, torch.tensor([2.0, -1.0])
    )
    with pytest.raises(ValueError, match="shorter"):
        policy_steps(turns, torch.tensor([2.0]))


def test_a_batch_holds_what_was_sampled_and_nothing_where_there_is_no_token():
    steps = [PolicyStep(LONG, 2.0), PolicyStep(SHORT, -1.0)]
    batch = policy_batch(steps, shared_system(), aggregation="token_mean")

    assert [[2, 3, 0], [6, 0, 0]] == batch.rows.continuation_ids.tolist()
    assert [[-1.0, -2.0, -3.0], [-1.0, -1.0, 0.0]] == batch.behaviour_logprobs.tolist()
    assert [[-4.0, -5.0, -6.0], [0.0] * 3] == batch.reference_logprobs.tolist()
    assert [[True] * 3, [True, False, False]] == batch.mask.tolist()
    assert [[2.0], [-1.0]] == batch.advantages.tolist()
    assert (3 + 3) + (2 + 2) == batch.num_tokens


# 3 + 1 trained tokens, 2 probes, or 2 probes of at most 6 tokens.
@each_row(
    ("mode", "weight"),
    [("token_mean", 4), ("sequence_mean", 2), ("sequence_sum", 2), ("constant_length", 12)],
)
def test_a_batch_weighs_what_its_aggregation_counts(mode, weight):
    steps = [PolicyStep(LONG, 2.0), PolicyStep(SHORT, -1.0)]

    assert weight == policy_batch(steps, shared_system(), aggregation=mode).weight


def test_advantages_are_a_column_or_one_per_token():
    steps = [
        SimpleNamespace(node=LONG, advantages=(0.1, 0.2, 0.3)),
        SimpleNamespace(node=SHORT, advantages=(0.4, 0.5)),
    ]
    batch = policy_batch(steps, shared_system(), aggregation="token_mean")

    torch.testing.assert_close(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.0]]), batch.advantages)
