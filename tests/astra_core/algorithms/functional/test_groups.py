import torch

from astra_core.algorithms import functional as fn


def test_flat_groups_are_those_without_a_lesson():
    rewards = torch.tensor([0.1, 0.9, 0.5, 0.5, 0.3])
    groups = torch.tensor([7, 7, 2, 2, 5])  # told apart, tied, alone

    assert fn.num_flat_groups(rewards, groups) == 2
    assert fn.num_flat_groups(rewards, groups, min_spread=1.0) == 3
