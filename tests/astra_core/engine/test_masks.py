from types import SimpleNamespace

import torch
from each_row import each_row

from astra_core.engine.masks import attention_masks

VISIBLE = torch.tensor([[[True, False, False], [True, True, False], [True, True, True]]])
DISTANCES = torch.tensor([[[0, -1, -2], [1, 0, -1], [2, 1, 0]]])
NEAR = VISIBLE & (DISTANCES < 2)


def masks(dtype=torch.float32, **config):
    return attention_masks(SimpleNamespace(**config), VISIBLE, DISTANCES, dtype=dtype)


def shown(mask):
    assert set(mask.flatten().tolist()) == {0.0, torch.finfo(mask.dtype).min}
    assert mask.shape == (1, 1, 3, 3)
    return mask[:, 0] == 0.0


@each_row(
    "config",
    [
        {},
        {"sliding_window": None},
        {"sliding_window": 2, "layer_types": ["full_attention"] * 2},
        {"sliding_window": None, "layer_types": ["full_attention"]},
    ],
)
def test_without_a_window_a_query_sees_all_that_is_visible(config):
    assert torch.equal(VISIBLE, shown(masks(**config)))


def test_a_window_counts_the_query_itself():
    assert torch.equal(NEAR, shown(masks(sliding_window=2)))
    assert torch.equal(VISIBLE, shown(masks(sliding_window=3)))


@each_row("kinds", [["full_attention", "sliding_attention"], ["sliding_attention"] * 2])
def test_layers_of_two_kinds_get_a_mask_for_each(kinds):
    found = masks(sliding_window=2, layer_types=kinds)

    assert {"full_attention", "sliding_attention"} >= set(found) >= set(kinds)
    assert torch.equal(NEAR, shown(found["sliding_attention"]))
    if "full_attention" in found:
        assert torch.equal(VISIBLE, shown(found["full_attention"]))


@each_row("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_mask_is_of_the_type_of_the_attention(dtype):
    mask = masks(dtype=dtype)

    assert dtype == mask.dtype
    assert torch.equal(VISIBLE, shown(mask))
    # Finite: a query that sees nothing must not become NaN.
    assert bool(mask.isfinite().all())
