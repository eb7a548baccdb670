import pytest
import torch
from each_row import each_row
from tiny_training import configured

from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_parts.services.remote_options import (
    RemoteOptions,
    ServicePrices,
    TokensUsed,
    adam_of,
    check_refills,
    check_settings,
    count_tokens,
)
from astra_parts.services.trainer_state import TrainerState

ADDRESS = {"address": "http://127.0.0.1:1", "base_model": "tiny"}


def test_a_limit_on_cost_needs_prices():
    with pytest.raises(ConfigurationError, match="prices must be given where max_cost is"):
        RemoteOptions.read({**ADDRESS, "max_cost": 1.0}, where="options")


def test_by_default_a_failed_draw_is_asked_for_again_and_nothing_limits_the_cost():
    options = RemoteOptions.read(ADDRESS, where="options")

    assert ("retry", 3) == (options.on_error, options.retries)
    assert (None, None, True) == (options.max_tokens, options.max_cost, options.export)


USED = TokensUsed(prefill=2_000_000, sampled=1_000_000, trained=500_000)


@each_row(("kind", "cost"), [("prefill", 2.0), ("sampled", 1.0), ("trained", 0.5)])
def test_each_kind_of_token_has_its_price_by_the_million(kind, cost):
    assert USED.cost(ServicePrices(**{kind: 1.0})) == pytest.approx(cost)


def test_a_cost_is_reported_only_where_prices_are_known():
    assert "remote_cost" not in USED.figures(None)
    assert USED.figures(ServicePrices(prefill=3.0))["remote_cost"] == pytest.approx(6.0)
    assert USED.figures(None)["remote_trained_tokens"] == pytest.approx(5e5)


def test_tokens_of_a_stage_are_counted_once(tmp_path):
    state = TrainerState.open(tmp_path / "state.json", run="run")
    state.once("a", {}, do=lambda _: {"tokens": 5})
    state.once("b", {}, do=lambda _: {"tokens": 2})

    assert TokensUsed(3, 4, 7) == count_tokens(state, (3, 4))
    # What a restart has read again meanwhile is in the count of the next stage.
    assert TokensUsed(3, 4, 7) == count_tokens(state, (30, 40))


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
