import math

import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as fn
from astra_core.errors import ConfigurationError

# Ratios 2, 3 and 1/2; the last token of the second row is not trained.
RATIOS = torch.tensor([[2.0, 3.0], [0.5, 8.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True], [True, False]])


def test_a_token_weighs_by_its_ratio_up_to_the_cap():
    found = fn.off_policy_weights(RATIOS, MASK, level="token", cap=2.5)

    torch.testing.assert_close(found, torch.tensor([[2.0, 2.5], [0.5, 1.0]]).double())
    low = fn.off_policy_weights(RATIOS, MASK, level="token", cap=0.75)
    torch.testing.assert_close(low, torch.tensor([[0.75, 0.75], [0.5, 1.0]]).double())


@each_row(("cap", "first"), [(5.0, 5.0), (10.0, 6.0)])
def test_a_sequence_weighs_by_the_product_of_its_trained_tokens(cap, first):
    found = fn.off_policy_weights(RATIOS, MASK, level="sequence", cap=cap)

    torch.testing.assert_close(found, torch.tensor([[first], [0.5]]).double())


def test_a_sequence_is_kept_if_its_mean_ratio_is_near_one():
    # Their geometric means are the root of 6, about 2.45, and 1 / 2.
    kept = [fn.is_near_policy(RATIOS, MASK, cap=cap).tolist() for cap in (1.5, 2.2, 2.5)]

    assert [[False, False], [False, True], [True, True]] == kept
    # At the very edge, in the precision of the ratios.
    edge = torch.tensor([[1.01]], dtype=torch.float64).log()
    assert [True] == fn.is_near_policy(edge, torch.ones(1, 1).bool(), cap=1.01).tolist()


def test_the_policy_that_sampled_itself_weighs_one_and_is_kept():
    same = torch.zeros(2, 2)

    assert [[1.0, 1.0]] * 2 == fn.off_policy_weights(same, MASK, level="token", cap=2.0).tolist()
    assert [[1.0]] * 2 == fn.off_policy_weights(same, MASK, level="sequence", cap=5.0).tolist()
    assert [True, True] == fn.is_near_policy(same, MASK, cap=1.01).tolist()


def test_weights_make_the_mean_that_of_the_newer_policy():
    old, new = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.3, 0.5]).double()
    worth = torch.tensor([1.0, 2.0, 4.0]).double()
    ratios = (new / old).log()[:, None]

    weights = fn.off_policy_weights(ratios, torch.ones(3, 1).bool(), level="token", cap=100.0)

    assert math.isclose(float((old * weights[:, 0] * worth).sum()), float((new * worth).sum()))


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ConfigurationError, match="cap must be positive"):
        fn.off_policy_weights(RATIOS, MASK, level="token", cap=0.0)
    with pytest.raises(ConfigurationError, match="cap must be above 1"):
        fn.is_near_policy(RATIOS, MASK, cap=1.0)
