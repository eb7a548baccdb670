from pathlib import Path

import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_parts.models.gguf import convert_gguf

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
SIZE, WORDS = 32, ["<end>", "a", "b", "c", "ab", "Ġ"]


def tiny_gguf(path, *, num_layers=1, left_out=""):
    """A Llama as llama.cpp keeps it, whose embeddings are tied and count up."""
    import gguf

    shapes = {f"{name}.weight": (SIZE, SIZE) for name in ("attn_q", "attn_k", "attn_v")}
    shapes |= {"attn_output.weight": (SIZE, SIZE), "attn_norm.weight": (SIZE,)}
    shapes |= {f"ffn_{name}.weight": (SIZE, SIZE) for name in ("gate", "up", "down")}
    shapes |= {"ffn_norm.weight": (SIZE,)}
    embedded = np.arange(len(WORDS) * SIZE, dtype=np.float32).reshape(-1, SIZE) / 100
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(SIZE)
    writer.add_block_count(num_layers)
    writer.add_feed_forward_length(SIZE)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, *[1] * (len(WORDS) - 1)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", embedded)
    writer.add_tensor("output_norm.weight", np.ones(SIZE, np.float32))
    for name, shape in shapes.items():
        if name != left_out:
            writer.add_tensor(f"blk.0.{name}", np.full(shape, 0.1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embedded


@pytest.mark.real
def test_a_gguf_becomes_a_folder_with_its_weights_tokenizer_and_template(tmp_path):
    embedded = tiny_gguf(tmp_path / "tiny.gguf")
    count = convert_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    model = LanguageModel.load(tmp_path / "tiny")

    # Seven matrices, three norms and the embeddings, which are the head too.
    assert 7 * SIZE**2 + 3 * SIZE + embedded.size == count
    found = model.model.get_input_embeddings().weight
    assert np.array_equal(embedded, found.detach().numpy())
    assert found.data_ptr() == model.model.get_output_embeddings().weight.data_ptr()
    assert ((4, 3), TEMPLATE) == (model.encode("abc"), model.tokenizer.chat_template)
    assert "quantization" not in (tmp_path / "tiny" / "config.json").read_text("utf-8")


@pytest.mark.real
def test_a_gguf_without_some_of_its_weights_leaves_no_folder(tmp_path):
    tiny_gguf(tmp_path / "tiny.gguf", left_out="ffn_up.weight")
    with pytest.raises(ConfigurationError, match=r"got ValueError: no weights .*up_proj"):
        convert_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    assert not (tmp_path / "tiny").exists()


@each_row(
    ("content", "reason"),
    [
        (None, "must be a GGUF file, got .*nothing there"),
        (b"PK", "must be a GGUF file, got another kind of file"),
        (b"GGUF", "--folder must be new or empty, got .*a folder"),
    ],
)
def test_what_cannot_be_converted_is_one_line(tmp_path, content, reason):
    file, folder = tmp_path / "it.gguf", tmp_path / "full"
    folder.mkdir(exist_ok=True)
    Path(folder / "there").touch()
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=reason):
        convert_gguf(file, folder)
