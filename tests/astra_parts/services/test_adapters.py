import json

import pytest
import torch
from each_row import each_row
from safetensors.torch import load_file, save_file
from tiny_architectures import tiny_model

from astra_core.errors import TrainingError
from astra_parts.services.adapters import add_downloaded

LLAMA = {"target_modules": ["q_proj", "down_proj"]}
GPT2 = {"target_modules": ["c_attn", "c_proj"]}
PATTERNS = {
    "rank_pattern": {"q_proj": 3},
    "alpha_pattern": {"layers.1.mlp.down_proj": 5, "q_proj": 7},
}


# PEFT reads a property of transformers' by its former name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def downloaded(folder, name="llama tied", **options):
    """What PEFT writes of adapters, none of them zero, and the weights that it merges them to."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_model(name), LoraConfig(r=2, lora_alpha=8, **options))
    torch.manual_seed(0)
    for key, weight in model.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder / "inside")
    return model.merge_and_unload().state_dict()


@pytest.mark.real
@each_row(
    ("name", "options"),
    [
        ("llama tied", LLAMA),
        ("llama tied", LLAMA | {"use_rslora": True}),
        ("llama tied", LLAMA | PATTERNS),
        ("gpt2", GPT2 | {"fan_in_fan_out": True}),
    ],
)
def test_the_weights_are_those_that_peft_merges(name, options, tmp_path):
    merged, model = downloaded(tmp_path, name, **options), tiny_model(name)
    add_downloaded(model, tmp_path)
    before = tiny_model(name).state_dict()

    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, merged[key])
        is_adapted = any(each in key for each in options["target_modules"])
        assert torch.equal(value, before[key]) is not (is_adapted and key.endswith("weight"))


@each_row(
    ("option", "told"),
    [
        ({"use_dora": True}, "use_dora: True"),
        ({"bias": "all"}, "bias: all"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: pissa"),
        ({"peft_type": "IA3"}, "peft_type: IA3"),
        ({"invented": 1}, "invented: 1"),
    ],
)
def test_options_that_would_add_something_else_are_refused(option, told, tmp_path):
    downloaded(tmp_path, **LLAMA)
    file = tmp_path / "inside" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | option))

    with pytest.raises(TrainingError, match=f"options that are known here, got {told}"):
        add_downloaded(tiny_model("llama tied"), tmp_path)


@each_row(
    ("old", "new", "told"),
    [
        ("layers.1", "layers.99", "must fit the attacker's weights, got model.layers.99"),
        ("model.layers.0.self_attn.q_proj", "lm_head", "must fit the attacker's weights, got lm_h"),
        ("lora_B", "lora_magnitude", "must be pairs of lora_A and lora_B"),
    ],
)
def test_adapters_of_another_model_are_refused_and_change_nothing(old, new, told, tmp_path):
    downloaded(tmp_path, **LLAMA)
    file = tmp_path / "inside" / "adapter_model.safetensors"
    save_file({key.replace(old, new): value for key, value in load_file(file).items()}, file)
    model = tiny_model("llama tied")

    with pytest.raises(TrainingError, match=told):
        add_downloaded(model, tmp_path)
    before = tiny_model("llama tied").state_dict()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_an_archive_without_adapters_is_reported(tmp_path):
    with pytest.raises(TrainingError, match=r"must hold one adapter_model.safetensors, got 0"):
        add_downloaded(tiny_model("llama tied"), tmp_path)
