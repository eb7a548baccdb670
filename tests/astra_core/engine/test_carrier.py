import torch
from tiny_architectures import tiny_model

from astra_core.engine import attention
from astra_core.engine.abilities import abilities_of
from astra_core.engine.carrier import load_of, with_load


class Load:
    """Something that rides."""


def test_a_load_rides_on_the_tensor_itself_and_not_on_a_copy_or_view():
    tensor, load = torch.zeros(2, 3), Load()

    assert tensor is with_load(tensor, load)
    assert load is load_of(tensor, Load)
    assert load_of(tensor.clone(), Load) is None
    assert load_of(tensor[:1], Load) is None


def test_a_load_is_taken_for_what_it_is_and_nothing_for_nothing():
    assert load_of(with_load(torch.zeros(1), Load()), torch.Size) is None
    assert load_of(torch.zeros(1), Load) is None
    assert load_of(None, Load) is None


def test_the_last_load_counts():
    last = Load()

    assert last is load_of(with_load(with_load(torch.zeros(1), Load()), last), Load)


def test_a_mask_arrives_at_every_layer_with_its_load(monkeypatch):
    model, met = tiny_model("gpt2"), []
    assert abilities_of(model).takes_masks
    own = attention.attention

    def noted(module, query, key, value, attention_mask, **options):
        met.append(load_of(attention_mask, Load))
        return own(module, query, key, value, attention_mask, **options)

    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, attention.NAME, noted)
    load = Load()
    mask = with_load(torch.zeros(1, 1, 3, 3), load)
    model(input_ids=torch.tensor([[1, 2, 3]]), attention_mask=mask, use_cache=False)

    assert [load] * model.config.num_hidden_layers == met
