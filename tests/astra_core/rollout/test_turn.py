import math

from astra_parts.testing import tiny_node


def test_likelihood_under_the_target_is_per_token():
    assert math.isclose(2.5, tiny_node(0.0, target_logprobs=(-1.0, -4.0)).target_nll)
    assert tiny_node(0.0, target_logprobs=()).target_nll == 0.0


def test_the_kl_of_a_probe_is_the_sum_of_its_log_ratios():
    node = tiny_node(0.0, probe_logprobs=(-1.0, -2.0), reference_logprobs=(-1.5, -3.0))

    assert math.isclose(1.5, node.kl_nats)
    assert tiny_node(0.0, reference_logprobs=()).kl_nats == 0.0


def test_a_turn_with_a_reason_has_failed():
    assert not tiny_node(0.0).has_failed
    assert tiny_node(0.0, failure="TargetError: no answer").has_failed
