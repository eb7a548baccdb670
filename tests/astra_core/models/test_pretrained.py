import os

import pytest
import torch
from each_row import each_row
from safetensors.torch import load_file, save_file

from astra_core.errors import ConfigurationError
from astra_core.models.pretrained import device_for, load_pretrained, threads_for, weights_digest
from astra_parts.testing import tiny_language_model


def test_a_small_model_gets_one_thread_and_a_request_is_obeyed():
    available = len(os.sched_getaffinity(0))

    assert threads_for(1_000_000, 0) == 1
    assert threads_for(0, 0) == 1
    assert threads_for(10**12, 0) == available
    assert threads_for(1_000_000, 7) == 7


def test_the_digest_names_weights_and_tokenizer_but_not_our_own_note(tmp_path):
    tiny_language_model(1).save(tmp_path / "a")
    tiny_language_model(1).save(tmp_path / "b")
    tiny_language_model(2).save(tmp_path / "c")
    (tmp_path / "b" / "astra.json").write_text("{}")
    (tmp_path / "b" / "README.md").write_text("about")

    assert weights_digest(tmp_path / "a") == weights_digest(tmp_path / "b")
    assert weights_digest(tmp_path / "a") != weights_digest(tmp_path / "c")
    (tmp_path / "b" / "tokenizer_config.json").write_text("{}")
    assert weights_digest(tmp_path / "a") != weights_digest(tmp_path / "b")


def test_weights_are_single_precision_whatever_was_stored(tmp_path):
    model = tiny_language_model(1)
    model.model.bfloat16()
    model.save(tmp_path)

    loaded, _ = load_pretrained(tmp_path)
    assert {"torch.float32"} == {str(p.dtype) for p in loaded.parameters()}


def test_missing_weights_are_refused_instead_of_drawn_at_random(tmp_path):
    tiny_language_model().save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop(next(name for name in weights if "mlp" in name))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ConfigurationError, match="must hold every weight"):
        load_pretrained(tmp_path)


def test_processes_of_one_machine_share_its_cores(monkeypatch):
    available = len(os.sched_getaffinity(0))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(available))

    assert threads_for(10**12, 0) == 1
    assert threads_for(10**12, 3) == 3


@each_row(
    ("requested", "num_devices", "local_rank", "device"),
    [
        ("cpu", 0, "0", "cpu"),
        ("cpu", 2, "1", "cpu"),
        ("auto", 0, "0", "cpu"),
        ("auto", 2, "0", "cuda:0"),
        ("auto", 2, "1", "cuda:1"),
        ("cuda", 1, "0", "cuda:0"),
        ("cuda", 2, "1", "cuda:1"),
    ],
)
def test_a_process_has_the_device_of_its_own_number(
    monkeypatch, requested, num_devices, local_rank, device
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    monkeypatch.setenv("LOCAL_RANK", local_rank)

    assert torch.device(device) == device_for(requested)


@each_row(
    ("num_devices", "words"),
    [
        (0, "machine.device must be 'cpu' or 'auto' where there is no CUDA device, got 'cuda'"),
        (1, "machine.num_processes must be at most 1, one for each CUDA device, got process 2"),
    ],
)
def test_a_device_that_is_not_there_is_one_clear_line(monkeypatch, num_devices, words):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    monkeypatch.setenv("LOCAL_RANK", "1")

    with pytest.raises(ConfigurationError, match=words) as told:
        device_for("cuda")
    assert "\n" not in str(told.value)
