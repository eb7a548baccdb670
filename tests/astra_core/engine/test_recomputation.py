import torch
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.engine.recomputation import recomputed
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


@each_row("lora", [None, {"rank": 2}])
def test_recomputation_changes_no_weight(lora):
    runs = []
    for is_on in (False, True):
        config = configured(gradient_checkpointing=is_on, lora=lora, training_steps=2)
        runs.append(trainer_of(config, is_evaluated=False))
        runs[-1].train()

    assert weights_of(runs[0]) == weights_of(runs[1])
