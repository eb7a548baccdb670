import pytest
import torch
from tiny_training import configured

from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_parts.services.remote_limits import adam_of, check_refills, check_settings

FREE = {"max_grad_norm": None, "kl": {"max_per_experience_nats": None}}


def test_a_plain_configuration_is_served():
    check_settings(configured(**FREE), clips=False)
    check_settings(configured(**{**FREE, "max_grad_norm": 1.0}), clips=True)


def test_clipping_that_nobody_does_is_refused():
    with pytest.raises(ConfigurationError, match=r"max_grad_norm must be null .* got 1.0"):
        check_settings(configured(**{**FREE, "max_grad_norm": 1.0}), clips=False)


def test_the_services_step_is_the_optimisers():
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    own = torch.optim.AdamW([weight], betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    step = adam_of(own, lr=0.5, config=configured(**FREE))

    assert (0.5, 0.8, 0.9, 1e-6, 0.1, 0.0) == (
        step.lr, step.beta1, step.beta2, step.eps, step.weight_decay, step.grad_clip_norm,
    )  # fmt: skip


def test_adams_decay_is_not_the_services():
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    own = torch.optim.Adam([weight], weight_decay=0.1)
    config = configured(**FREE, optimizer={"name": "adam"})

    with pytest.raises(ConfigurationError, match=r"optimizer.options.weight_decay must be 0.0"):
        adam_of(own, lr=0.5, config=config)


def test_a_draw_that_may_fail_is_not_refilled():
    refilled, plain = TreeSampler.Options(refills=2), TreeSampler.Options()

    check_refills(refilled, on_error="retry")
    check_refills(plain, on_error="min_group")
    with pytest.raises(ConfigurationError, match=r"refills must be 0 .* got 2"):
        check_refills(refilled, on_error="min_group")
