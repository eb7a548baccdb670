"""Where models come from, and that nobody outside is asked unless the hub is named."""

import json
import shutil
import socket
import time
from pathlib import Path

import pytest
from each_row import each_row
from outside_calls import outside_calls

from astra_core.errors import ConfigurationError
from astra_core.models.folders import hub_folder, model_folder, require_folder
from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import load_pretrained
from astra_core.models.tokenizers import tokenizer_digest
from astra_parts.testing import tiny_language_model

COMMIT = "0123456789abcdef" * 2 + "01234567"
LOADERS = (load_pretrained, tokenizer_digest, LanguageModel.load, model_folder, require_folder)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "good"
    tiny_language_model(seed=1).save(folder)
    return folder


@pytest.fixture
def offered(good, tmp_path):
    """Makes a copy of the good folder and changes one of its JSON files."""

    def change(file, **entries):
        folder = tmp_path / "offered"
        shutil.copytree(good, folder, dirs_exist_ok=True)
        path = folder / file
        record = json.loads(path.read_text("utf-8")) if path.exists() else {}
        path.write_text(json.dumps(record | entries), encoding="utf-8")
        return folder

    return change


def test_the_trap_holds_whoever_asks():
    with outside_calls() as hosts:
        with pytest.raises(OSError, match="the trap"):
            socket.getaddrinfo("huggingface.co", 443)
        with socket.socket() as probe, pytest.raises(OSError, match="the trap"):
            probe.connect(("192.0.2.1", 443))

    assert ["huggingface.co", "192.0.2.1"] == hosts


@each_row("load", LOADERS)
@each_row("place", ["my/attaker", "attaker", "./my/attaker", "/no/such/folder"])
def test_a_missing_folder_is_one_line_and_asks_nobody(load, place):
    with outside_calls() as hosts, pytest.raises(ConfigurationError) as caught:
        load(place)

    assert [] == hosts
    assert "must be a Hugging Face folder, got no such folder" in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


@each_row("load", LOADERS)
def test_a_file_an_empty_folder_and_an_adapter_are_refused(load, good, tmp_path, offered):
    (tmp_path / "empty").mkdir()
    adapter = offered("adapter_config.json", base_model_name_or_path="owner/name")
    with outside_calls() as hosts:
        for place, got in (
            (good / "config.json", "got a file"),
            (tmp_path / "empty", "got no config.json"),
            (adapter, "got an adapter"),
        ):
            with pytest.raises(ConfigurationError, match=got):
                load(place)

    assert [] == hosts


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        ("config.json", {"_name_or_path": "owner/name"}),
        ("config.json", {"auto_map": {"AutoModelForCausalLM": "owner/name--modeling_x.X"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["owner/name--words.X", None]}}),
        ("tokenizer_config.json", {"tokenizer_class": "MistralTokenizer"}),
        ("generation_config.json", {"custom_generate": "owner/name"}),
    ],
)
def test_a_folder_that_names_the_hub_is_loaded_without_it(offered, file, entries):
    folder = offered(file, **entries)
    with outside_calls() as hosts:
        load_pretrained(folder)
        tokenizer_digest(folder)

    assert [] == hosts


@pytest.mark.parametrize(
    "entries",
    [
        # Code of its own, here or elsewhere: transformers would ask whether to run it.
        {"model_type": "mine", "auto_map": {"AutoConfig": "owner/name--configuration_x.X"}},
        {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_x.X"}},
        # What takes packages that need not be there.
        {"attn_implementation": "owner/kernel"},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
    ],
)
def test_a_folder_that_needs_what_is_not_there_is_one_line(offered, capfd, entries):
    folder = offered("config.json", **entries)
    with (
        outside_calls() as hosts,
        pytest.raises(ConfigurationError, match="must be a Hugging Face causal LM") as caught,
    ):
        load_pretrained(folder)

    assert [] == hosts
    assert 1 == len(str(caught.value).splitlines())
    assert "custom code?" not in capfd.readouterr().out


def test_a_folder_is_found_wherever_it_is(good):
    assert good == model_folder(good) == model_folder(str(good)) == require_folder(good)


@each_row(
    "name", ["hub:", "hub:owner/name", "hub:owner/name@main", f"hub:a/b/c@{COMMIT}", "hub:x@0"]
)
def test_a_hub_model_is_named_with_its_commit(name):
    with outside_calls() as hosts, pytest.raises(ConfigurationError, match="must be named 'hub:"):
        model_folder(name)

    assert [] == hosts


def test_the_hub_is_asked_when_it_is_named_and_nothing_else_is(good, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between its tries
    with outside_calls() as hosts, pytest.raises(ConfigurationError, match="must be reachable"):
        hub_folder("owner/name", COMMIT)

    assert {"huggingface.co"} == set(hosts)


def test_a_hub_model_in_the_cache_is_its_folder(good, monkeypatch, tmp_path):
    from huggingface_hub import constants

    snapshot = Path(tmp_path, "models--owner--name", "snapshots", COMMIT)
    shutil.copytree(good, snapshot)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert snapshot == model_folder(f"hub:owner/name@{COMMIT}")
