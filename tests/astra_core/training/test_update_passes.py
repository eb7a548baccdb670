"""How the passes of an update are run: precision, route, recomputation."""

import pytest
import torch
from each_row import each_row
from tiny_training import choice, configured, trainer_of, weights_of
from two_weights import Batch, TwoWeights, updates_of

from astra_core.config import TrainingConfiguration
from astra_core.engine.machine import Machine
from astra_core.training.update import learning_plan
from astra_parts.testing import tiny_system

pytestmark = pytest.mark.routes


class Watching(TwoWeights):
    """Notes how the attacker would compute if it were asked now."""

    def step(self, batch):
        modules = list(self.system.attacker.model.modules())
        is_cast = torch.is_autocast_enabled("cpu")
        self.dtype = torch.get_autocast_dtype("cpu") if is_cast else torch.float32
        layers = [module for module in modules if isinstance(module, torch.nn.Linear)]
        self.is_routed = any("forward" in vars(layer) for layer in layers)
        self.is_recomputed = any(module.training for module in modules)
        return super().step(batch)


@each_row(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_precision_is_what_it_says_whatever_the_device_takes_unasked(precision, dtype):
    updates, algorithm = updates_of(kind=Watching, precision=precision)
    before = torch.get_autocast_dtype("cpu")
    # What a GPU takes unasked.
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        updates.apply([Batch()], training_step=0)
    finally:
        torch.set_autocast_dtype("cpu", before)

    assert dtype == algorithm.dtype


@each_row(
    ("precision", "route", "is_routed"),
    [("fp32", "fast", True), ("fp32", "plain", False), ("bf16", "fast", False)],
)
def test_linear_layers_take_the_route_of_the_plan_in_fp32(precision, route, is_routed):
    machine = Machine("cpu", "any", route, frozenset())
    updates, algorithm = updates_of(kind=Watching, machine=machine, precision=precision)
    updates.apply([Batch()], training_step=0)

    assert is_routed == algorithm.is_routed


@each_row("is_on", [True, False])
def test_layers_are_set_to_be_computed_again_only_where_the_configuration_says(is_on):
    updates, algorithm = updates_of(kind=Watching, gradient_checkpointing=is_on)
    updates.apply([Batch()], training_step=0)

    assert is_on == algorithm.is_recomputed


def test_bf16_trains_other_weights_in_fp32():
    runs = [
        trainer_of(configured(precision=p, training_steps=1), is_evaluated=False)
        for p in ("fp32", "bf16")
    ]
    for trainer in runs:
        trainer.train()
    models = [trainer.sampler.system.attacker.model for trainer in runs]

    assert weights_of(runs[0]) != weights_of(runs[1])
    # An update moves a weight by the learning rate at most, whatever the processor rounds.
    apart = 2 * runs[0].config.lr * runs[0].progress.step
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.float32 == other.dtype
        torch.testing.assert_close(one, other, rtol=0.0, atol=1.1 * apart)


def first_update(**changes):
    """The first update of a run that learns from packed trees, and what it leaves behind."""
    changes = {"optimizer": choice("adamw"), "max_grad_norm": None, **changes}
    config = configured(training_steps=1, batch_size=64, **changes)
    trainer = trainer_of(config, is_evaluated=False)
    # Their own gradients, before the optimiser moves and forgets them.
    found, model = {}, trainer.sampler.system.attacker.model
    handles = [
        weight.register_post_accumulate_grad_hook(
            lambda own, name=name: found.update({name: own.grad.clone()})
        )
        for name, weight in model.named_parameters()
    ]
    (report,) = trainer.steps()
    for handle in handles:
        handle.remove()
    return report, found, trainer


def flat(gradients):
    return torch.cat([gradients[name].flatten() for name in sorted(gradients)])


def test_bf16_keeps_gradients_and_the_optimisers_memory_in_fp32_and_the_loss_near():
    exact, expected, _ = first_update()
    report, found, trainer = first_update(precision="bf16")
    states = trainer.updates.optimizer.state.values()
    kept = [value for own in states for value in own.values() if torch.is_tensor(value)]

    assert {torch.float32} == {gradient.dtype for gradient in found.values()}
    assert {torch.float32} == {value.dtype for value in kept}
    assert exact.loss == pytest.approx(report.loss, rel=0.03, abs=0.03)
    assert exact.loss != report.loss
    cosine = torch.nn.functional.cosine_similarity(flat(expected), flat(found), dim=0)
    assert float(cosine) > 0.99


def test_recomputed_activations_give_the_same_update_of_packed_trees():
    exact, expected, _ = first_update()
    report, found, _ = first_update(gradient_checkpointing=True)

    assert exact.loss == pytest.approx(report.loss, rel=1e-6)
    torch.testing.assert_close(flat(expected), flat(found), rtol=1e-5, atol=1e-7)


@each_row(("precision", "compiled"), [("fp32", True), ("bf16", False)])
def test_the_plan_of_an_update_follows_the_configuration(precision, compiled):
    attacker = tiny_system().attacker
    config = TrainingConfiguration(
        precision=precision, gradient_checkpointing=True, compile=compiled
    )
    plan, found = attacker.plan, learning_plan(attacker, config)

    assert (precision, True, compiled) == (found.learns_in, found.recomputes, found.compiles_passes)
    assert plan == found.learning(precision="fp32", recomputes=False)
