import json

import pytest
import torch
from safetensors.torch import save_file

from astra_core.errors import TrainingError
from astra_core.services.adapters import add_downloaded
from astra_core.testing import tiny_language_model

OWN = "model.layers.0.self_attn.q_proj"


def written(folder, *, name=OWN, rank=2):
    width = 0
    model = tiny_language_model(1).model
    width = model.get_parameter(f"{OWN}.weight").shape[0]
    down = torch.arange(rank * width, dtype=torch.float32).view(rank, width) / 100
    up = torch.ones(width, rank)
    place = folder / "inside"
    place.mkdir()
    tensors = {f"base_model.model.{name}.lora_{k}.weight": v for k, v in (("A", down), ("B", up))}
    save_file(tensors, place / "adapter_model.safetensors")
    config = {"r": rank, "lora_alpha": 4}
    (place / "adapter_config.json").write_text(json.dumps(config))
    return model, up @ down


def test_adapters_are_added_with_their_scale(tmp_path):
    model, change = written(tmp_path)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    add_downloaded(model, tmp_path)

    for key, value in model.state_dict().items():
        wanted = before[key] + 2.0 * change if key == f"{OWN}.weight" else before[key]
        assert torch.allclose(wanted, value)


def test_adapters_of_another_model_are_refused(tmp_path):
    model, _ = written(tmp_path, name="model.layers.99.self_attn.q_proj")

    with pytest.raises(
        TrainingError, match=r"must fit the attacker's weights, got model.layers.99"
    ):
        add_downloaded(model, tmp_path)


def test_an_archive_without_adapters_is_told(tmp_path):
    with pytest.raises(TrainingError, match=r"must hold one adapter_model.safetensors, got 0"):
        add_downloaded(tiny_language_model(1).model, tmp_path)
