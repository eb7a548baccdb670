"""One process in this one; two and three over gloo, as torchrun starts them."""

import shutil
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from distributed_training import WIDE
from each_row import each_row, wide_but
from safetensors.torch import load_file
from started_processes import SIZE, as_numbers, ended, left_in, started
from tiny_training import configured, trainer_of, weights_of

from astra_core.config import Choice, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.distribution.distributed import World
from astra_core.training.distribution.sharding import Shards, full, is_divided, layers_of, local
from astra_core.training.optimization.parts import parameter_groups
from astra_parts.testing import tiny_language_model

# Sums over processes are in another order.
MOST_APART = 1e-6


@pytest.fixture(scope="module")
def shards():
    """Those of a group of one process, which has every part."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield Shards(tiny_language_model(0, layers=2, is_trained=True), world=World())
    torch.distributed.destroy_process_group()


@pytest.mark.real
def test_layers_are_divided_and_the_rest_is_the_attackers_own(shards):
    whole = dict(shards._attacker.model.named_parameters())
    own = dict(shards.model.named_parameters())

    assert whole.keys() == own.keys()
    assert {name for name in own if is_divided(own[name])} == {n for n in own if ".layers." in n}
    for name, weight in own.items():
        assert (weight is whole[name]) is not is_divided(weight)


@pytest.mark.real
def test_gradients_and_their_norm_are_those_of_plain_weights(shards):
    ids = torch.tensor([[1, 2, 3, 4]])
    for model in (shards.model, shards._attacker.model):
        model.zero_grad()
    with shards.learns():
        shards._attacker.model(ids).logits.logsumexp(-1).sum().backward()
    found = {name: full(p.grad).clone() for name, p in shards.model.named_parameters()}
    gradients = [p.grad for p in shards.model.parameters()]
    norm = shards.clip(gradients, 1.0)
    cut = torch.cat([full(own).reshape(-1) for own in gradients]).norm()
    shards._attacker.model.zero_grad()
    shards._attacker.model(ids).logits.logsumexp(-1).sum().backward()

    plain = {name: p.grad for name, p in shards._attacker.model.named_parameters()}
    for name, gradient in plain.items():
        torch.testing.assert_close(gradient, found[name], rtol=1e-5, atol=1e-5)
    whole = torch.nn.utils.get_total_norm(list(plain.values()))
    assert float(whole) == pytest.approx(norm, rel=1e-5)
    assert 1.0 == pytest.approx(float(cut), rel=1e-4)


@pytest.mark.real
def test_what_was_learned_is_gathered_and_what_was_loaded_is_divided(shards):
    name = next(name for name, p in shards.model.named_parameters() if is_divided(p))
    learned = dict(shards.model.named_parameters())[name]
    whole = dict(shards._attacker.model.named_parameters())[name]
    optimizer = torch.optim.SGD([learned], lr=0.1, momentum=0.9)

    with torch.no_grad():
        local(learned).fill_(3.0)
    shards.gather()
    assert {3.0} == set(whole.flatten().tolist())

    with torch.no_grad():
        whole.fill_(5.0)
    optimizer.state[learned] = {"momentum_buffer": torch.full(whole.shape, 7.0)}
    shards.scatter(optimizer)
    assert {5.0} == set(full(learned).flatten().tolist())
    moment = optimizer.state[learned]["momentum_buffer"]
    assert is_divided(moment)
    assert {7.0} == set(full(moment).flatten().tolist())


@pytest.mark.real
@each_row("name", ["adamw", "adam", "sgd", "rmsprop", "adagrad"])
def test_every_optimiser_moves_divided_weights_as_plain_ones(shards, name):
    moved = []
    for model in (shards.model, tiny_language_model(0, layers=2, is_trained=True).model):
        plugin = build("optimizer", Choice(name=name))
        groups = parameter_groups(model, (), weight_decay=0.01, lr=0.1)
        optimizer = plugin.optimizer(groups, 0.1)
        before = [{**own, "params": None} for own in optimizer.param_groups]
        shards_of = shards.steps(optimizer) if model is shards.model else nullcontext()
        with torch.no_grad():
            for weight in model.parameters():
                local(weight).fill_(0.5)
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
            local(weight.grad).fill_(0.25)
        with shards_of:
            optimizer.step()
        assert before == [{**own, "params": None} for own in optimizer.param_groups]
        moved.append({name: full(p.detach()).clone() for name, p in model.named_parameters()})

    for weight, other in zip(moved[0].values(), moved[1].values(), strict=True):
        assert 0.5 != float(weight.flatten()[0])
        torch.testing.assert_close(weight, other)


@each_row(
    ("setting", "value"), [("lora", {}), ("gradient_checkpointing", True), ("dump_steps", [1])]
)
def test_what_would_need_whole_weights_is_refused(setting, value):
    given = {"sharding": "full", setting: value}

    with pytest.raises(ConfigurationError, match=f"{setting} must be left out"):
        TrainingConfiguration.read(given, where="training")


def test_a_model_without_layers_cannot_be_divided():
    with pytest.raises(ConfigurationError, match="which has no list of layers"):
        layers_of(torch.nn.Linear(2, 2))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a divided run of two processes leaves."""
    folder = tmp_path_factory.mktemp("whole")
    statuses = ended(started(folder, "sharded"))
    assert [0, 0] == [status for status, _ in statuses], statuses
    return folder


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """What one leaves whose second process dies in its second update."""
    folder = tmp_path_factory.mktemp("cut")
    assert [0, 7] != [status for status, _ in ended(started(folder, "sharded-die"))]
    return folder


def gap(some, others):
    return np.abs(as_numbers(some) - as_numbers(others)).max()


@pytest.mark.real
def test_two_processes_learn_what_one_learns_and_each_holds_a_part(whole, tmp_path):
    alone = trainer_of(configured(batch_size=4, **WIDE), tmp_path / "alone", layers=2)
    losses = [report.loss for report in alone.steps()]
    said, weights = left_in(whole)

    assert weights[0] == weights[1]
    assert said[0]["losses"] == said[1]["losses"] == pytest.approx(losses, abs=1e-5)
    assert gap(weights[0], weights_of(alone)) <= MOST_APART
    model = alone.sampler.system.attacker.model
    layers = sum(p.nbytes for p in layers_of(model).parameters())
    rest = sum(p.nbytes for p in model.parameters()) - layers
    # Weights, gradients and one moment.
    assert [3 * (layers / SIZE + rest) / 2**20] * SIZE == pytest.approx(
        [own["mib"] for own in said], rel=0.02
    )


@pytest.mark.real
def test_the_parts_of_a_checkpoint_are_read_as_that_of_one_process(whole, tmp_path):
    alone = trainer_of(configured(batch_size=4, **WIDE), tmp_path / "alone", layers=2)
    alone.train()
    some, other = CheckpointStore(whole / "run").newest(), alone.store.newest()
    parts = sorted((whole / "run" / some.name / "state").iterdir())
    held = [load_file(part) for part in parts]

    assert SIZE == len(parts)
    # Its halves of the layers, and nothing else, are what the second process writes.
    assert {name for name in some.tensors if ".layers." in name} <= held[1].keys()
    for name, half in held[1].items():
        assert held[0][name].numel() + half.numel() == some.tensors[name].numel()
    assert {name: t.shape for name, t in some.tensors.items()} == {
        name: t.shape for name, t in other.tensors.items()
    }
    for name, tensor in some.tensors.items():
        torch.testing.assert_close(tensor, other.tensors[name], rtol=1e-4, atol=1e-5)


@pytest.mark.wide
@pytest.mark.parametrize("size", wide_but([1, 2, 3], 1, 3))
def test_a_killed_run_continues_in_another_number_of_processes(whole, cut, tmp_path, size):
    folder = shutil.copytree(cut, tmp_path / "cut")
    assert not (folder / "weights_0").exists()
    statuses = ended(started(folder, f"sharded{size}", ranks=range(size), size=size))
    assert [0] * size == [status for status, _ in statuses], statuses

    weights = [(own / "weights_0").read_bytes() for own in (whole, folder)]
    assert gap(*weights) <= MOST_APART
    assert size != SIZE or weights[0] == weights[1]


@pytest.mark.real
def test_one_process_has_nothing_to_divide_and_learns_the_same():
    plain, full_alone = (
        trainer_of(configured(training_steps=1, sharding=own), is_evaluated=False)
        for own in ("none", "full")
    )
    plain.train()
    full_alone.train()

    assert full_alone.updates.shards is None
    assert weights_of(plain) == weights_of(full_alone)


@pytest.mark.real
def test_a_loop_by_hand_is_refused(shards):
    trainer = trainer_of(configured(), is_evaluated=False)
    trainer.updates.shards = shards
    batch = next(iter(trainer.harness.experience()))

    with pytest.raises(ConfigurationError, match="sharding must be 'none' for a loop by hand"):
        trainer.harness.step(batch)
