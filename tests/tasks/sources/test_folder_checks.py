"""Wrong folders are in tests/bad_input/model_folders.py; here are right ones."""

import json

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.models.pretrained import load_pretrained
from astra_parts.testing import tiny_language_model
from tasks.sources.folder_checks import check_folder, check_model


@pytest.fixture
def folder(tmp_path):
    tiny_language_model(seed=1).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_that_was_saved_is_whole(folder):
    check_folder(folder)
    check_model(*load_pretrained(folder), folder)


def test_parts_of_weights_are_looked_for_by_their_index(folder):
    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    index = {"weight_map": {"model.norm.weight": "part-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    check_folder(folder)


@each_row(
    "entries",
    [
        {"pad_token_id": -1},  # none, in early folders
        {"architectures": None},
        {"architectures": ["LLaMAForCausalLM"]},  # an early name
        {"architectures": ["LlamaModel"]},
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
        {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]},
        {"model_type": "bert", "architectures": ["BertForMaskedLM"], "is_decoder": True},
    ],
)
def test_a_causal_model_may_name_itself_in_several_ways(folder, entries):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **entries}))

    check_folder(folder)


def test_a_model_that_cannot_read_is_a_mistake_in_its_config(folder):
    model, tokenizer = load_pretrained(folder)
    model.model.layers[0].self_attn.head_dim = 3

    with pytest.raises(ConfigurationError, match=r"config\.json must describe a model that reads"):
        check_model(model, tokenizer, folder)
