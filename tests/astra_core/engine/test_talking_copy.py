import pytest
import torch

from astra_core.config import LoraConfiguration
from astra_core.engine.abilities import abilities_of
from astra_core.engine.talking_copy import TalkingCopy
from astra_core.models.lora import add_adapters
from astra_parts.testing import tiny_language_model

IDS = torch.tensor([[1, 2, 3, 4]])


def moved(model, factor=1.5):
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.mul_(factor).add_(0.01)


@pytest.mark.parametrize("is_adapted", [False, True])
@torch.no_grad()
def test_the_copy_says_what_the_model_says_now_at_the_same_addresses(is_adapted):
    model = tiny_language_model(0, is_trained=True).model
    if is_adapted:
        add_adapters(model, LoraConfiguration(rank=2), seed=0)
    copied = TalkingCopy(model)
    places = [weight.data_ptr() for weight in copied.model.parameters()]
    before = copied.model(IDS).logits.float()
    moved(model)
    copied.refresh()
    after = copied.model(IDS).logits.float()

    torch.testing.assert_close(model(IDS).logits, after, rtol=0.05, atol=0.1)
    assert float((before - after).abs().max()) > 0.1
    assert places == [weight.data_ptr() for weight in copied.model.parameters()]
    assert {torch.bfloat16} == {weight.dtype for weight in copied.model.parameters()}
    assert not any("lora" in name for name, _ in copied.model.named_parameters())
    assert abilities_of(model) == abilities_of(copied.model)


def test_rotary_frequencies_keep_their_precision():
    buffers = dict(TalkingCopy(tiny_language_model(0).model).model.named_buffers())

    assert {torch.float32} == {own.dtype for name, own in buffers.items() if "inv_freq" in name}
