import pytest
import torch
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.config import LoraConfiguration
from astra_core.engine.recomputation import recomputed
from astra_core.models.lora import add_adapters
from astra_core.testing import tiny_language_model


@each_row("kind", ["llama", "gpt2"])
def test_layers_are_computed_again_in_the_backward_pass_and_there_alone(kind):
    model = tiny_language_model(kind=kind, is_trained=True).model
    counts = []
    part = next(module for name, module in model.named_modules() if name.endswith("mlp"))
    part.register_forward_pre_hook(lambda *_: counts.append(torch.is_grad_enabled()))
    ids = torch.tensor([[4, 5, 6]])
    for is_recomputed in (False, True):
        counts.clear()
        if is_recomputed:
            with recomputed(model):
                model(input_ids=ids, use_cache=False).logits.sum().backward()
        else:
            model(input_ids=ids, use_cache=False).logits.sum().backward()
        assert (2 if is_recomputed else 1) == len(counts)
    with torch.no_grad():
        model(input_ids=ids, use_cache=True)

    assert 3 == len(counts)
    assert not any(module.training for module in model.modules())


@each_row("lora", [None, LoraConfiguration(rank=2)])
def test_recomputation_changes_no_gradient(lora):
    model = tiny_language_model(is_trained=True).model
    if lora:
        add_adapters(model, lora, seed=0)

    def gradients():
        model.zero_grad()
        model(input_ids=torch.tensor([[4, 5, 6, 7]]), use_cache=False).logits.logsumexp(
            dim=2
        ).sum().backward()
        return [own.grad for own in model.parameters() if own.requires_grad]

    expected = gradients()
    with recomputed(model):
        assert all(map(torch.equal, expected, gradients()))


@pytest.mark.real
def test_recomputation_changes_no_weight():
    runs = []
    for is_on in (False, True):
        config = configured(gradient_checkpointing=is_on, lora={"rank": 2}, training_steps=1)
        runs.append(trainer_of(config, is_evaluated=False))
        runs[-1].train()

    assert weights_of(runs[0]) == weights_of(runs[1])
