import pytest
import torch
from each_row import each_row
from tiny_benchmark import QUICK, TINY

from benchmarks.measures.profiles import kind_of, profiled, report


@each_row(
    ("operator", "kind"),
    [
        ("aten::addmm", "linear layers"),
        ("aten::mm", "linear layers"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::bmm", "attention"),
        ("aten::topk", "sampling"),
        ("aten::_softmax", "softmax"),
        ("aten::copy_", "copies"),
        ("aten::native_layer_norm", "elementwise and norms"),
        ("aten::_fused_adamw_", "optimiser"),
        ("some::thing", "other operators"),
    ],
)
def test_an_operator_has_a_kind(operator, kind):
    assert kind == kind_of(operator)


def test_shares_of_a_call_sum_to_one_and_the_largest_comes_first():
    left = torch.rand(256, 256)
    shares = profiled(lambda: [left @ left for _ in range(20)])

    assert sum(shares.values()) == pytest.approx(1.0)
    assert sorted(shares.values(), reverse=True) == list(shares.values())
    assert "aten::mm" in shares


@pytest.mark.wide
def test_rollout_and_training_step_are_profiled():
    first, second = report(TINY, QUICK).tables

    assert "rollout of tiny" in first
    assert "training step of tiny" in second
    assert all("linear layers" in text for text in (first, second))
