import math

import pytest
import torch

from astra_core.algorithms.functional import masked_whiten
from astra_core.config import Choice, TrainingConfiguration
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.trainer import Trainer
from astra_parts.testing import (
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)

PLAIN = {"whiten_advantages": False, "kl": "none"}


def values_of(algorithm, context, probe):
    return algorithm._value_head.values([context], [probe], tokens_per_batch=512)[0]


def test_a_single_turn_that_ended_by_hand(make_algorithm):
    algorithm = make_algorithm("ppo", **PLAIN, final_turn="terminated", decay=0.5)
    node = tiny_node(1.0)
    v0, v1, v2, _ = values_of(algorithm, node.context_ids, node.probe_ids)
    (step,) = algorithm.flatten(tiny_graph(node))
    d0, d1, d2 = v1 - v0, v2 - v1, 1.0 - v2

    expected = [d0 + 0.5 * d1 + 0.25 * d2, d1 + 0.5 * d2, d2]
    assert (v0, v1, v2) == pytest.approx(step.values, abs=1e-6)
    assert expected == pytest.approx(step.advantages, abs=1e-5)
    assert [a + v for a, v in zip(expected, (v0, v1, v2), strict=True)] == pytest.approx(
        step.returns, abs=1e-5
    )


def test_the_turn_limit_cuts_a_conversation_whose_future_is_predicted(make_algorithm):
    node = tiny_node(1.0)
    cut, ended = (
        make_algorithm("ppo", **PLAIN, final_turn=final, turn_discount=0.5).flatten(
            tiny_graph(node)
        )[0]
        for final in ("truncated", "terminated")
    )
    # What the attacker would have read next: context, probe and reply, each closed by its end.
    following = (4, 5, 0, 2, 3, 0, 13, 0)
    future = values_of(make_algorithm("ppo"), following, ())[0]

    assert 0.5 * future == pytest.approx(cut.advantages[2] - ended.advantages[2], abs=1e-5)
    assert abs(future) > 1e-3


def test_where_a_turn_follows_its_value_and_advantage_are_passed_on(make_algorithm):
    algorithm = make_algorithm("ppo", **PLAIN, final_turn="terminated", turn_discount=0.5)
    child = tiny_node(0.8, context_ids=(4, 5, 0, 2, 3, 0, 13, 0), probe_ids=(6, 0))
    first, second = algorithm.flatten(tiny_graph(tiny_node(0.2, child)))
    expected = 0.2 + 0.5 * (second.values[0] + 0.95 * second.advantages[0]) - first.values[2]

    assert expected == pytest.approx(first.advantages[2], abs=1e-5)


def test_a_turn_all_of_whose_followers_failed_was_cut(make_algorithm, failing):
    algorithm = make_algorithm("ppo", **PLAIN)
    alone, *_ = algorithm.flatten(tiny_graph(tiny_node(0.2)))
    followed = algorithm.flatten(tiny_graph(tiny_node(0.2, failing(tiny_node(0.9)))))

    assert [alone.advantages] == [step.advantages for step in followed]


def test_the_reward_stands_at_the_last_token_and_kl_is_paid_at_each(make_algorithm):
    free = make_algorithm("ppo", **PLAIN, decay=0.0)
    priced = make_algorithm("ppo", whiten_advantages=False, decay=0.0, kl_coefficient=0.1)
    graph = tiny_graph(tiny_node(1.0))
    lower = priced.flatten(graph)[0].advantages
    higher = free.flatten(graph)[0].advantages

    # tiny_node lies 0.5 nats above the reference at each token.
    gaps = [b - a for a, b in zip(lower, higher, strict=True)]
    assert [0.05] * 3 == pytest.approx(gaps, abs=1e-6)


def test_whitening_is_over_the_tokens_of_the_whole_experience(make_algorithm, experience):
    plain = make_algorithm("ppo", whiten_advantages=False).flatten_all(experience)
    white = make_algorithm("ppo").flatten_all(experience)
    tokens = torch.tensor([a for step in plain for a in step.advantages])
    expected = masked_whiten(tokens, torch.ones_like(tokens, dtype=torch.bool))

    found = torch.tensor([a for step in white for a in step.advantages])
    torch.testing.assert_close(expected, found, rtol=1e-4, atol=1e-5)


def test_a_context_that_was_cut_keeps_what_fits(make_algorithm, make_system):
    system = make_system()
    node = tiny_node(1.0, context_ids=tuple([4] * 63 + [0]))
    step = make_algorithm("ppo", system, **PLAIN).flatten(tiny_graph(node))[0]

    assert all(math.isfinite(value) for value in step.advantages)


def test_a_reply_in_another_tokenizer_is_read_as_text(make_algorithm):
    system = tiny_system(5, target=tiny_language_model(6, vocabulary=None))
    assert not system.shares_tokenizer
    node = tiny_node(1.0, response_texts=("no",), response_ids=((250, 0),))
    other = tiny_node(1.0, response_texts=("no",), response_ids=((99, 98, 0),))
    algorithm = make_algorithm("ppo", system, **PLAIN)

    assert algorithm.flatten(tiny_graph(node))[0].advantages == (
        algorithm.flatten(tiny_graph(other))[0].advantages
    )


def test_the_value_head_learns_the_return(make_algorithm, experience):
    algorithm = make_algorithm("ppo", value_clip=None, value_coefficient=1.0)
    batch = algorithm.collate(algorithm.flatten_all(experience))
    optimizer = torch.optim.Adam(algorithm.parameters(), lr=0.1)
    losses = []
    for _ in range(12):
        loss, metrics = algorithm.step(batch)
        (loss / batch.weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(metrics["value_loss"])

    assert losses[-1] < 0.5 * losses[0]


def test_entropy_is_reported_only_where_it_counts(make_algorithm, experience):
    plain, warm = (make_algorithm("ppo", entropy_coefficient=c) for c in (0.0, 0.5))
    batch = plain.collate(plain.flatten_all(experience))
    (loss, metrics), (warmer, told) = plain.step(batch), warm.step(batch)

    assert "entropy_nats" not in metrics
    assert -0.5 * told["entropy_nats"] * batch.weight == pytest.approx(
        float(warmer.detach() - loss.detach()), rel=1e-4
    )


CONFIG = TrainingConfiguration.model_validate(
    {
        "training_steps": 4,
        "num_episodes_per_experience": 2,
        "batch_size": 4,
        "epochs_per_experience": 2,
        "lr": 0.01,
        "checkpoint": {"save_every": 1, "keep": 9},
    }
)
ADAPTIVE = {"kl_control": "proportional", "kl_target_nats": 0.1, "kl_horizon": 50.0}


def trainer_at(folder, name, options):
    system = tiny_system(1)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=1),
        system=system,
        prompts=tiny_prompts(5),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )
    algorithm = build("algorithm", Choice(name=name, options=options), system=system)
    return Trainer(CONFIG, sampler, algorithm, store=CheckpointStore(folder, keep=9))


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {**ADAPTIVE, "entropy_coefficient": 0.01}),
        pytest.param(
            "reinforce", {"baseline": "running", "kl": "reward", **ADAPTIVE}, marks=pytest.mark.wide
        ),
        pytest.param("grpo", {"kl": "loss", **ADAPTIVE}, marks=pytest.mark.wide),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(name, options, tmp_path):
    whole = trainer_at(tmp_path / "whole", name, options)
    whole.train()
    killed = trainer_at(tmp_path / "killed", name, options)
    for report in killed.steps():
        if report.training_step == 3:
            break
    resumed = trainer_at(tmp_path / "killed", name, options)
    assert resumed.resume()
    assert 2 == resumed.progress.training_step
    resumed.train()

    expected, found = whole.store.newest().tensors, resumed.store.newest().tensors
    assert set(expected) == set(found)
    assert all(torch.equal(value, found[key]) for key, value in expected.items())
    assert 0.05 != float(expected["algorithm/kl_coefficient"])
    # What the algorithm trains of its own has moments of its own.
    num_moments = sum(key.endswith("exp_avg") for key in expected)
    num_weights = sum(key.startswith("model/") for key in expected)
    assert len(whole.algorithm.parameters()) == num_moments - num_weights
