"""A Llama folder with a byte-level tokenizer as one GGUF file: ``python to_gguf.py FOLDER FILE``.

Runs in the environment of llama.cpp's server, which has ``gguf`` and no torch.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def main(folder: Path, file: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(str(file), "llama")
    write_config(writer, config)
    write_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()))
    embeddings = weights["model.embed_tokens.weight"].astype(np.float32)
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"].astype(np.float32))
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in LAYER.items():
            tensor = weights[f"model.layers.{layer}.{theirs}.weight"].astype(np.float32)
            tensor = interleaved(tensor, heads[ours]) if ours in heads else tensor
            writer.add_tensor(f"blk.{layer}.{ours}.weight", np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_config(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def write_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict) -> None:
    model = tokenizer["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    special = {each["id"] for each in tokenizer["added_tokens"]}
    types = [
        gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL
        for number in range(len(tokens))
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """Hugging Face's rotary halves in the interleaved order of the file."""
    width = weights.shape[0] // heads // 2
    halves = weights.reshape(heads, 2, width, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
