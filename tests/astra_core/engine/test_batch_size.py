import torch
from tiny_architectures import tiny_model

from astra_core.engine.batch_size import bytes_per_token, tokens_within_memory


def test_a_batch_has_room_for_keys_values_and_half_of_the_logits():
    # Two layers of two groups, four wide, keys and values; a vocabulary of twenty.
    assert 2 * (2 * 2 * 2 * 4 + 10) == bytes_per_token(tiny_model("llama grouped"))


def test_the_size_is_a_power_of_two_that_fits_the_free_memory(monkeypatch):
    model, gpu = tiny_model("llama grouped"), torch.device("cuda")
    sizes = []
    for free in (1 << 22, (1 << 22) + (1 << 20), 1 << 23, 1 << 40):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        sizes.append(tokens_within_memory([model], gpu))

    assert [8192, 8192, 16384, 1 << 18] == sizes
    assert 16384 == tokens_within_memory([model], torch.device("cpu"))
