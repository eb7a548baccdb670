"""The figures that are logged, with batches whose log-ratios are set and not sampled."""

import math
from dataclasses import replace

import pytest
import torch

from astra_core.algorithms.movement import FIGURES
from astra_core.engine.logprobs import token_logprobs
from astra_parts.testing import tiny_graph, tiny_node

# Two probes: three tokens that are trained and one in between that is not, and two more.
LONG = tiny_node(0.9, probe_ids=(2, 3, 6, 0), probe_mask=(True, True, False, True))
SHORT = tiny_node(0.1, probe_ids=(7, 0))
RATIOS = torch.tensor([[2.0, 0.5, 1e6, 1.0], [4.0, 0.5, 1e6, 1e6]])
ADVANTAGES = torch.tensor([[1.0, 1.0, 1e6, 1.0], [-3.0, -3.0, 1e6, 1e6]])
MOVED = {
    "ratio": (2.0 + 0.5 + 1.0 + 4.0 + 0.5) / 5,
    # k3 of the sampling policy against this one is r - 1 - log r; the logarithms add up to log 2.
    "policy_kl_nats": (8.0 - 5.0 - math.log(2.0)) / 5,
    "advantage": (3 * 1.0 - 2 * 3.0) / 5,
}


def metrics_of(algorithm, **parts):
    """What a step logs for the two probes, at the ratios and advantages above."""
    batch = algorithm.collate(algorithm.flatten(tiny_graph(LONG, SHORT)))
    policy = getattr(batch, "policy", batch)
    with torch.no_grad():
        now = token_logprobs(algorithm.system.attacker.model, policy.rows)
    policy = replace(policy, behaviour_logprobs=now - RATIOS.log(), advantages=ADVANTAGES)
    return logged(algorithm.step(replace(batch, policy=policy, **parts) if parts else policy)[1])


def logged(figures):
    """Without how far the attacker has moved, which every algorithm tells."""
    assert set(FIGURES) <= set(figures)
    return {name: value for name, value in figures.items() if name not in FIGURES}


@pytest.mark.parametrize(
    ("name", "options", "clipped"),
    [
        ("reinforce", {}, None),
        # Good and risen above 1.2: the first. Bad and fallen below 0.8: the last.
        ("grpo", {}, 2 / 5),
        ("grpo", {"clip_high": 1.5}, 1 / 5),
        # Of whole probes: geometric means 1 and the root of 2, the bad one risen.
        ("grpo", {"ratio": "sequence"}, 0.0),
        ("distillation", {}, 2 / 5),
        # Products 1 and 2.
        ("rloo", {}, 0.0),
    ],
)
def test_what_is_logged_is_a_mean_over_the_trained_tokens(name, options, clipped, make_algorithm):
    found = metrics_of(make_algorithm(name, **options))
    expected = MOVED if clipped is None else {**MOVED, "clipped": clipped}

    assert expected == pytest.approx(found, rel=1e-4)


def test_a_whole_probe_that_is_clipped_counts_with_each_of_its_trained_tokens(make_algorithm):
    algorithm = make_algorithm("rloo")
    batch = algorithm.collate(algorithm.flatten(tiny_graph(LONG, SHORT)))
    with torch.no_grad():
        now = token_logprobs(algorithm.system.attacker.model, batch.rows)
    twice = torch.full_like(now, math.log(2.0))
    column = torch.tensor([[1.0], [-1.0]])
    moved = replace(batch, behaviour_logprobs=now - twice, advantages=column)

    # The good probe of three trained tokens rose too far, the bad one of two did not.
    assert 3 / 5 == pytest.approx(algorithm.step(moved)[1]["clipped"])


def test_ppo_logs_what_the_value_head_says_and_should_have_said(make_algorithm):
    algorithm = make_algorithm("ppo", entropy_coefficient=0.1, value_clip=0.25)
    with torch.no_grad():
        weight, bias = algorithm.parameters()
        weight.zero_()
        bias.fill_(0.5)
        for parameter in algorithm.system.attacker.model.parameters():
            parameter.zero_()
    size = algorithm.system.attacker.model.config.vocab_size
    found = metrics_of(
        algorithm,
        old_values=torch.tensor([[0.5, 0.0, 9.0, 0.5], [0.5, 0.5, 9.0, 9.0]]),
        returns=torch.tensor([[1.5, 1.5, 9.0, 0.5], [0.5, -0.5, 9.0, 9.0]]),
    )

    # Errors of 1, 1.25 (the head may move by 0.25 from the old value 0), 0, 0 and 1.
    values = {"value": 0.5, "return": 3.5 / 5, "value_loss": (1.0 + 1.25**2 + 1.0) / 2 / 5}
    # A model of zeros finds every token equally likely.
    uniform = {"entropy_nats": math.log(size), "clipped": 2 / 5}
    assert {**MOVED, **values, **uniform} == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("name", ["sft", "expert_iteration"])
def test_the_likelihood_of_what_is_copied_is_per_trained_token(name, make_algorithm):
    algorithm = make_algorithm(name, **({"k": 1} if name == "expert_iteration" else {}))
    with torch.no_grad():
        for parameter in algorithm.system.attacker.model.parameters():
            parameter.zero_()
    batch = algorithm.collate(algorithm.flatten(tiny_graph(LONG, SHORT)))
    size = algorithm.system.attacker.model.config.vocab_size

    assert {"copied_nll_nats": math.log(size)} == pytest.approx(logged(algorithm.step(batch)[1]))


# The two first turns are apart, the children of the first alike, and the second has an only one.
FOREST = tiny_graph(
    tiny_node(0.9, tiny_node(0.5), tiny_node(0.5)), tiny_node(0.1, tiny_node(0.3)), tiny_node(0.4)
)
GROUPS = {"groups": 3.0, "flat_groups": 2.0}
FREE = {"kl": "none"}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("dpo", {}, {**GROUPS, "pairs": 1.0}),
        ("trajectory_balance", {"backup": "none"}, {**GROUPS, "pairs": 3.0}),
        ("sft", {"pairs": "all", "margin": 0.6}, {**GROUPS, "pairs": 1.0}),
        ("grpo", {}, GROUPS),
        ("grpo", {"min_spread": 9.0}, {**GROUPS, "flat_groups": 3.0}),
        ("rloo", FREE, GROUPS),
        ("rloo", {"kl": "loss", "kl_coefficient": 0.25}, {**GROUPS, "kl_coefficient": 0.25}),
        # With what follows at 0.9: 0.9 + 0.45, 0.1 + 0.27, 0.4, 0.5, 0.5 and 0.3 over six turns.
        ("reinforce", {}, {"running_mean": 3.42 / 6}),
        ("reinforce", {"baseline": "leave_one_out"}, {**GROUPS, "running_mean": 3.42 / 6}),
        ("ppo", FREE, {}),
        ("distillation", {}, {}),
        # Rollouts of 1.4, 1.4, 0.4 and 0.4.
        ("expert_iteration", {"k": 3}, {"rollouts": 4.0, "copied_rollouts": 3.0}),
        (
            "expert_iteration",
            {"selection": "threshold", "threshold": 0.5},
            {"rollouts": 4.0, "copied_rollouts": 2.0},
        ),
    ],
)
def test_what_an_experience_held_is_counted(name, options, expected, make_algorithm):
    assert expected == pytest.approx(make_algorithm(name, **options).remember([FOREST]))


def test_experiences_are_counted_over_all_their_graphs(make_algorithm):
    expected = {"groups": 6.0, "flat_groups": 4.0, "pairs": 2.0}

    assert expected == make_algorithm("dpo").remember([FOREST, FOREST])
