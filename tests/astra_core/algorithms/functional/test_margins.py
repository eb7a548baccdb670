"""What the losses over pairs share; the refusals are shown at each of them."""

import torch

from astra_core.algorithms.functional import margins as pairs

CHOSEN, REJECTED = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 4.0])


def test_a_margin_is_the_chosen_log_ratio_minus_the_rejected():
    assert [0.5, -6.0] == pairs.margins(CHOSEN, REJECTED, 0.5).tolist()
    assert [0.25, -3.0] == pairs.scaled_margins(CHOSEN, REJECTED, 0.5).tolist()
