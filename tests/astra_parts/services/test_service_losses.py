import pytest
import torch
from each_row import each_row
from tiny_training import TALK, sampler_of

from astra_core.config import Choice
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_core.training.harness import Harness
from astra_parts.services.records import records_of
from astra_parts.services.service_losses import loss_on_record, service_loss
from astra_parts.testing import tiny_system


@pytest.fixture(scope="module")
def system():
    return tiny_system(1, config=TALK)


@pytest.fixture(scope="module")
def graphs(system):
    algorithm = build("algorithm", Choice(name="sft"), system=system)
    return Harness(sampler_of(system), algorithm, num_episodes=3).experience(0).graphs


@each_row(
    ("name", "options", "loss"),
    [
        ("reinforce", {"importance": "none"}, "cross_entropy"),
        ("reinforce", {"importance": "full"}, "importance_sampling"),
        ("reinforce", {"importance": "truncated", "max_ratio": 1.1}, "cispo"),
        ("grpo", {"clip_low": 0.1, "clip_high": 0.05}, "ppo"),
        ("grpo", {"aggregation": "sequence_mean"}, "ppo"),
        ("grpo", {"surrogate": "cispo", "max_ratio": 1.05}, "cispo"),
        ("sft", {}, "cross_entropy"),
        ("expert_iteration", {}, "cross_entropy"),
    ],
)
def test_the_services_loss_is_the_local_one(name, options, loss, system, graphs):
    algorithm = build("algorithm", Choice(name=name, options=options), system=system)
    harness = Harness(sampler_of(system), algorithm, num_episodes=3)
    (batch,) = harness.batches(harness.experience(0, graphs=graphs), epoch=0, batch_size=1000)
    # Of another policy, so that ratios are not 1 and some are beyond their bounds.
    moved = batch.behaviour_logprobs + torch.linspace(-0.4, 0.4, batch.mask.numel()).view_as(
        batch.mask.float()
    )
    batch = type(batch)(
        **{each: getattr(batch, each) for each in type(batch).__slots__}
        | {"behaviour_logprobs": moved}
    )
    wanted, figures = algorithm.step(batch)
    attacker = system.attacker
    now = token_logprobs(attacker.model, batch.rows, plan=attacker.plan).detach()
    found = service_loss(algorithm)
    mode = algorithm.options.aggregation
    total = 0.0
    for row in range(len(now)):
        one = {each: getattr(batch, each) for each in ("behaviour_logprobs", "mask", "advantages")}
        one = {key: value[row : row + 1] for key, value in one.items()}
        rows = type(batch.rows)(
            *(getattr(batch.rows, each)[row : row + 1] for each in type(batch.rows).__slots__)
        )
        alone = type(batch)(rows, reference_logprobs=now, weight=1.0, num_tokens=1, **one)
        for record in records_of(alone, aggregation=mode, weight=batch.weight):
            length = int(batch.rows.continuation_mask[row].sum())
            before = len(record.targets) - length
            logprobs = [0.0] * before + now[row, :length].tolist()
            total += loss_on_record(found, record, logprobs)

    assert loss == found.name
    assert float(wanted.detach()) / batch.weight == pytest.approx(total, rel=1e-4, abs=1e-6)
    assert figures.get("clipped", 1.0) > 0.0
    assert figures.get("capped", 1.0) > 0.0


@each_row(
    ("name", "options", "told"),
    [
        ("dpo", {}, "must be grpo, reinforce, sft or expert_iteration .* got DPO"),
        ("ppo", {}, "got PPO: a service computes no loss of pairs or values"),
        ("grpo", {"ratio": "sequence"}, "ratio must be 'token'"),
        ("grpo", {"surrogate": "sapo"}, "surrogate must be 'clip' or 'cispo'"),
        ("grpo", {"dual_clip": 3.0}, "dual_clip must be null"),
        ("grpo", {"entropy_coefficient": 0.1}, "entropy_coefficient must be 0 for"),
        ("grpo", {"kl": "loss"}, "kl must be 'none' or 'reward'"),
    ],
)
def test_what_no_service_computes_is_refused(name, options, told, system):
    algorithm = build("algorithm", Choice(name=name, options=options), system=system)

    with pytest.raises(ConfigurationError, match=told):
        service_loss(algorithm)
